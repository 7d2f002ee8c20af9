#!/bin/sh
# What can be told of the shop before it is on a machine.
set -e
grep -q '<h1>' page.html
python3 -m py_compile health.py
echo "version $(cat VERSION) looks like a shop"
