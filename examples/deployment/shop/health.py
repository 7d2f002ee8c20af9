"""Ask a machine whether it serves the shop; if not, its reason goes to standard error."""

import http.client
import sys
from urllib.parse import urlsplit

url = urlsplit(sys.argv[1])
connection = http.client.HTTPConnection(url.netloc, timeout=10)
connection.request("GET", f"{url.path}/health")
answer = connection.getresponse()
text = answer.read().decode().strip()
if answer.status != http.client.OK:
    sys.exit(text)
sys.stdout.write(f"{text}\n")
