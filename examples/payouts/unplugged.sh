#!/bin/sh
# Runs a command that pays somebody, and kills server and worker once the ledger is asked for it.
lines=$(wc -l < ledger.log)
"$@" || exit
until [ "$(wc -l < ledger.log)" -gt "$lines" ]; do sleep 0.1; done
tail -1 ledger.log
kill -9 "$(python3 -c 'import json; print(json.load(open(".rota/client.json"))["pid"])')"
