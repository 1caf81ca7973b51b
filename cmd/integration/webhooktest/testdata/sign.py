"""Prints the signature of what comes on standard input: sign.py SECRET ID TIMESTAMP."""

import base64
import hashlib
import hmac
import sys

secret, id, timestamp = sys.argv[1:]
key = base64.b64decode(secret.removeprefix("whsec_"))
signed = f"{id}.{timestamp}.".encode() + sys.stdin.buffer.read()
print("v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode())
