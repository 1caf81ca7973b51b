#!/usr/bin/env python3
"""Compare a shop's books with its card processor's ledger.

usage: books.py LEDGER DATABASE

LEDGER is the processor's file, DATABASE the shop's SQLite file or postgres://… (asked by psql). Payments less refunds have
to be what the ledger says, and each payment has to stand there once, as the shop says it is. All faults are printed; the
exit status is 1 if there is one. Nothing may be under way meanwhile.
"""

import collections
import json
import sqlite3
import subprocess
import sys

faults = []


def fault(text):
    faults.append(text)
    print(text)


def read_ledger(path):
    """Return the ledger's entries. A last line without an end was torn by a crash, and never happened."""
    with open(path, encoding="utf-8") as f:
        entries = [json.loads(line) for line in f if line.endswith("\n")]
    for n, e in enumerate(entries, 1):
        if e["seq"] != n:
            fault(f"ledger: line {n} has the number {e['seq']}")
        if not isinstance(e["amount"], int) or e["amount"] < 0:
            fault(f"ledger: entry {n} has the amount {e['amount']}")
    return entries


def read_table(database, name):
    """Return the rows of a table as dictionaries."""
    if database.startswith(("postgres://", "postgresql://")):
        query = f"SELECT coalesce(json_agg(t), '[]') FROM {name} t"
        out = subprocess.run(["psql", "-X", "-A", "-t", "-c", query, database], check=True, capture_output=True, text=True).stdout
        return json.loads(out)
    connection = sqlite3.connect(database, timeout=30)
    connection.row_factory = sqlite3.Row
    try:
        return [dict(row) for row in connection.execute(f"SELECT * FROM {name}")]
    finally:
        connection.close()


# What the ledger has to say of something in a state: kinds of entries, refunds apart.
AS_STATE = {
    "payment": {
        "prepared": (["authorization"],),
        "paid": (["charge"], ["authorization", "capture"]),
        "cancelled": (["authorization", "void"],),
        "declined": (["decline"], []),
    },
    "intent": {
        "created": (["authorization"],),
        "confirmed": (["authorization", "capture"],),
        "cancelled": (["authorization", "void"], []),
        "expired": (["authorization", "void"], []),
        "declined": (["decline"], []),
    },
}
TAKEN = ("charge", "capture")


def check(what, name, state, amount, currency, refunded, entries):
    """Compare one payment or intent with its entries. Return what is left of it with the shop."""
    allowed = AS_STATE[what].get(state)
    if allowed is None:
        fault(f"{name} is still {state}")
        return 0
    kinds = [e["kind"] for e in entries if e["kind"] != "refund"]
    if kinds not in allowed:
        fault(f"{name} is {state}, and the ledger has {', '.join(kinds) or 'nothing'}")
    for e in entries:
        if e["currency"] != currency or e["kind"] != "refund" and e["amount"] != amount:
            fault(f"{name} is about {amount} {currency}, and the ledger has {e['kind']} {e['amount']} {e['currency']}")
    back = sum(e["amount"] for e in entries if e["kind"] == "refund")
    if back != refunded:
        fault(f"{name}: {refunded} were given back, {back} as the ledger says")
    return amount - refunded if state in ("paid", "confirmed") else 0


def main(ledger, database):
    entries = read_ledger(ledger)
    by_reference = collections.defaultdict(list)
    keys = collections.Counter()
    totals = collections.Counter()
    for e in entries:
        if e["kind"] == "closure":
            continue
        by_reference[e.get("reference", "")].append(e)
        keys[e.get("key", "")] += 1
        totals[e["currency"]] += e["amount"] if e["kind"] in TAKEN else -e["amount"] if e["kind"] == "refund" else 0
    for key, n in keys.items():
        if key == "" or n > 1:
            fault(f"ledger: {n} entries have the key {key!r}")

    books = collections.Counter()
    for p in read_table(database, "payments"):
        name = f"payment {p['id']}"
        books[p["currency"]] += check("payment", name, p["state"], p["amount"], p["currency"], p["refunded"], by_reference.pop(p["id"], []))
        if p["moving"]:
            fault(f"{name} is still taken by {p['moving']}")
    for i in read_table(database, "intents"):
        books[i["currency"]] += check("intent", f"intent {i['id']}", i["state"], i["amount"], i["currency"], 0, by_reference.pop(i["reference"], []))
    for m in read_table(database, "movements"):
        if m["state"] == "pending":
            fault(f"the {m['kind']} of payment {m['payment']} is still under way")
    for reference, rest in by_reference.items():
        fault(f"the shop knows nothing of {reference or 'no name'}: {', '.join(e['kind'] for e in rest)}")
    for currency in sorted(set(books) | set(totals)):
        if books[currency] != totals[currency]:
            fault(f"payments less refunds are {books[currency]} {currency}, and {totals[currency]} as the ledger says")
        else:
            print(f"payments less refunds: {books[currency]} {currency}, as the ledger says")
    return 1 if faults else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2]))
