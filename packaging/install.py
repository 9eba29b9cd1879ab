"""Install packages into this Python's environment, as `pip install` with the same words does.

uv takes a third of pip's processor time and compiles nothing that may never be imported. It reads
neither pip's files nor pip's variables, so it is given what they say of indexes and certificates.
Where uv cannot be had, or fails, pip installs, and takes the newest versions.

With `--upgrade-tested` nothing is installed: the file of tested versions gets the newest ones.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
TESTED: Final = HERE / "tested-versions.txt"
PIP: Final = (sys.executable, "-m", "pip", "--disable-pip-version-check")
SECTIONS: Final = ("global", "install", ":env:")  # the later wins
VARIABLES: Final = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "constraint": "UV_CONSTRAINT",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}


def uv_variables(listed: str) -> dict[str, str]:
    """uv's variables for what `pip config list` prints: lines like `global.index-url='https://...'`.
    Folders that are not there are left out, which pip ignores and uv refuses."""
    found: dict[tuple[int, str], str] = {}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.rpartition(".")
        if section in SECTIONS and key in VARIABLES:
            words = [word for word in ast.literal_eval(value).split() if is_there(word)]
            separator = "," if key == "find-links" else " "
            found[SECTIONS.index(section), VARIABLES[key]] = separator.join(words)
    return {variable: value for (_, variable), value in sorted(found.items()) if value}


def is_there(word: str) -> bool:
    path = word.removeprefix("file://")
    return not path.startswith("/") or Path(path).exists()


def uv_pip(*words: str) -> bool:
    """Whether `uv pip` could be had and succeeded."""
    if subprocess.call([*PIP, "install", "--quiet", "uv"]) != 0:
        return False
    listed = subprocess.run([*PIP, "config", "list"], stdout=subprocess.PIPE, text=True).stdout
    # As with pip the best version of all indexes is chosen, and not that of the first index.
    env = {"UV_INDEX_STRATEGY": "unsafe-best-match", **uv_variables(listed), **os.environ}
    return subprocess.call([sys.executable, "-m", "uv", "pip", *words], env=env) == 0


def main(words: list[str]) -> int:
    os.environ.setdefault("DIST_EXTRA_CONFIG", str(HERE / "unpacked.cfg"))
    if words == ["--upgrade-tested"]:
        how = "--universal --python-version=3.11 --extra=test --no-header --no-annotate --quiet"
        project = str(HERE.parent / "pyproject.toml")
        return not uv_pip("compile", *how.split(), "--upgrade", f"--output-file={TESTED}", project)
    if uv_pip("install", "--python", sys.executable, "--constraint", str(TESTED), *words):
        return 0
    print("uv could not install the tested versions; pip takes the newest", file=sys.stderr)
    return subprocess.call([*PIP, "install", *words])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
