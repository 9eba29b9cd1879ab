#!/bin/sh
# A cluster of Spark on this machine, of the Spark that pip has installed: a master and two workers.
#
#     examples/spark/cluster.sh                 starts it, and runs until Ctrl-C
#     examples/spark/cluster.sh COMMAND ...     starts it, runs the command, and stops it
#
# The command finds the master in SPARK_MASTER:
#
#     examples/spark/cluster.sh sh -c 'zbus spark archive --master $SPARK_MASTER --topics orders --to archive'
set -eu

PYTHON=${PYTHON:-python3}
WORKERS=${WORKERS:-2}
CORES=${CORES:-1}
MEMORY=${MEMORY:-1g}

export SPARK_HOME=${SPARK_HOME:-$("$PYTHON" -c 'import pyspark; print(pyspark.__path__[0])')}
JAVA_HOME=$("$PYTHON" -c 'from zbus.spark.java import find_java_home; print(find_java_home())')
PYSPARK_PYTHON=$("$PYTHON" -c 'import sys; print(sys.executable)')
export JAVA_HOME PYSPARK_PYTHON SPARK_LOCAL_IP=127.0.0.1
PORT=$("$PYTHON" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export SPARK_MASTER=spark://127.0.0.1:$PORT

folder=$(mktemp -d)
started=
stop() {
  trap - EXIT INT TERM
  for each in $started; do kill "$each" 2>/dev/null || true; done
  wait
  rm -rf "$folder"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

start() {
  name=$1
  shift
  "$SPARK_HOME/bin/spark-class" "$@" >"$folder/$name.log" 2>&1 &
  started="$started $!"
}

wait_for() {
  for _ in $(seq 600); do
    if grep -q "$2" "$folder/$1.log"; then return; fi
    sleep 0.1
  done
  cat "$folder/$1.log" >&2
  echo "$1 has not started within a minute" >&2
  exit 1
}

start master org.apache.spark.deploy.master.Master --host 127.0.0.1 --port "$PORT" --webui-port 0
wait_for master "I have been elected leader"
number=0
while [ "$number" -lt "$WORKERS" ]; do
  number=$((number + 1))
  start "worker$number" org.apache.spark.deploy.worker.Worker --host 127.0.0.1 --webui-port 0 \
    --cores "$CORES" --memory "$MEMORY" --work-dir "$folder/work$number" "$SPARK_MASTER"
done
number=0
while [ "$number" -lt "$WORKERS" ]; do
  number=$((number + 1))
  wait_for "worker$number" "Successfully registered with master"
done
echo "a master and $WORKERS workers run: $SPARK_MASTER" >&2

if [ $# -gt 0 ]; then
  "$@"
else
  wait
fi
