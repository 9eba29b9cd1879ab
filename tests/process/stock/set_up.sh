#!/bin/sh
# Bring the clients that others wrote for zbus 0.11 into the folder $1; with `python` as $2 only that
# one. What cannot be had is named, and the tests of that client are skipped; nothing else depends on
# them.
set -u
folder=$1
only=${2:-}
mkdir -p "$folder"
missing() { echo "stock-clients: $1 is missing: $2" >&2; }

# Python: the client runs on Python before 3.9 only.
if [ ! -x "$folder/zbuspy/bin/python" ]; then
  python=
  for version in 3.8 3.7 3.6; do
    for name in "python$version" "$HOME"/.pyenv/versions/"$version".*/bin/python; do
      if [ -z "$python" ] && "$name" -c "" 2>/dev/null; then python=$name; fi
    done
  done
  if [ -z "$python" ]; then
    missing "the Python client" "there is no Python 3.6, 3.7 or 3.8 here"
  elif ! { "$python" -m venv "$folder/zbuspy" \
      && "$folder/zbuspy/bin/python" -m pip install --quiet zbuspy==0.11.3; }; then
    rm -rf "$folder/zbuspy"
    missing "the Python client" "zbuspy 0.11.3 cannot be installed from PyPI"
  fi
fi

[ "$only" = python ] && exit 0

# Java: the client with what it needs, from Maven Central.
if [ ! -d "$folder/java" ]; then
  if ! { command -v javac && command -v mvn; } >/dev/null; then
    missing "the Java client" "there is no javac, or no mvn"
  else
    cat > "$folder/pom.xml" <<'POM'
<project><modelVersion>4.0.0</modelVersion>
  <groupId>stock</groupId><artifactId>clients</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>io.zbus</groupId><artifactId>zbus</artifactId><version>0.11.5</version>
  </dependency></dependencies>
</project>
POM
    if ! mvn --quiet --file "$folder/pom.xml" dependency:copy-dependencies \
        -DoutputDirectory="$folder/java" >/dev/null; then
      rm -rf "$folder/java"
      missing "the Java client" "io.zbus:zbus:0.11.5 cannot be had from Maven Central"
    fi
  fi
fi

# JavaScript: the script is in the Java archive; `ws` is the WebSocket of Node.js.
if [ ! -f "$folder/zbus.js" ]; then
  unzip -qo "$folder/java/zbus-0.11.5.jar" zbus.js -d "$folder" 2>/dev/null \
    || missing "the JavaScript client" "zbus.js comes with the Java client"
fi
if [ ! -d "$folder/node_modules/ws" ]; then
  npm install --silent --no-fund --no-audit --prefix "$folder" ws@8 >/dev/null 2>&1 \
    || missing "the package ws of Node.js" "npm cannot install it"
fi
