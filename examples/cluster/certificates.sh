#!/bin/sh
# Certificates of the nodes of a cluster, in the folder where this runs: docs/howto/cluster.md
#   sh certificates.sh a b c      makes a.pem and a.key, b.pem ...
# The first time it makes an authority for them, ca.pem and ca.key. It must sign nodes and nobody else: keep ca.key where
# no node is. What is there already stays as it is.
set -eu
umask 077
if [ ! -e ca.key ]; then
    # Two authorities in one file, while one replaces the other, must not have the same name.
    name="nodes of zbus $(openssl rand -hex 4)"
    openssl req -x509 -newkey ed25519 -nodes -days 3650 -subj "/CN=$name" -keyout ca.key -out ca.pem
fi
for name; do
    [ ! -e "$name.pem" ] || continue
    openssl req -newkey ed25519 -nodes -subj "/CN=$name" -keyout "$name.key" -out "$name.csr"
    openssl x509 -req -in "$name.csr" -CA ca.pem -CAkey ca.key -days 3650 -out "$name.pem"
    rm "$name.csr"
done
