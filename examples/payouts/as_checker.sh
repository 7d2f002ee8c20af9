#!/bin/sh
# Runs a command of rota as the program whose token is in checker.json.
at() { python3 -c "import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])" "$1" "$2"; }
ROTA_URL=$(at .rota/client.json url) ROTA_TOKEN=$(at checker.json secret) exec "$@"
