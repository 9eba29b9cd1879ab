"""LOCAL STAND-IN, not committed: file-based stages, produce at commit."""
from __future__ import annotations
import pickle, uuid
from pathlib import Path
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from zbus.client import connect

ROOT = Path("/tmp/etl/stage")

class Msg(WriterCommitMessage):
    def __init__(self, path, app): self.path, self.app = path, app

class W(DataSourceWriter):
    def __init__(self, options): self.o = dict(options)
    def write(self, rows):
        from pyspark import TaskContext
        c = TaskContext.get()
        found = [r.asDict() for r in rows]
        ROOT.mkdir(parents=True, exist_ok=True)
        p = ROOT / str(uuid.uuid4()); p.write_bytes(pickle.dumps(found))
        return Msg(str(p), c.getLocalProperty("sql.streaming.queryId"))
    def _commit(self, messages, app, version):
        mark = ROOT / f"{app}-{version}".replace("/", "_").replace(":", "_")
        if mark.exists(): return
        with connect(self.o["broker"]) as bus:
            for m in messages:
                for r in pickle.loads(Path(m.path).read_bytes()):
                    b = r["body"]
                    h = {k: v for k, v in (r["headers"] or {}).items() if k not in ('sender',)}
                    bus.produce(r["topic"], bytes(b) if b is not None else b"", tag=r["tag"], key=r["key"], id=r["id"], headers=h)
        mark.write_text("")
    def commit(self, messages): self._commit(messages, self.o.get("txnappid") or self.o["txnAppId"], self.o.get("txnVersion", 0))
    def abort(self, messages): pass

class S(W, DataSourceStreamWriter):
    def commit(self, messages, batchId):
        self._commit(messages, messages[0].app if messages else "none", batchId)
    def abort(self, messages, batchId): pass

def writer(schema, options, overwrite): return W(options)
def stream_writer(schema, options, overwrite): return S(options)
