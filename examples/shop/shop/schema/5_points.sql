-- The balance is the sum of an account's entries, so that nobody has to add them up.
CREATE TABLE IF NOT EXISTS point_balances (
	tenant  TEXT   NOT NULL,
	account TEXT   NOT NULL,
	balance BIGINT NOT NULL CHECK (balance >= 0),
	entries BIGINT NOT NULL,
	PRIMARY KEY (tenant, account)
);

-- The ledger: nothing in it is ever changed. request_id is derived from the operation that made the entry; an account has one
-- entry of each request. balance is what the account had after the entry.
CREATE TABLE IF NOT EXISTS point_entries (
	tenant     TEXT   NOT NULL,
	account    TEXT   NOT NULL,
	number     BIGINT NOT NULL,
	request_id TEXT   NOT NULL,
	amount     BIGINT NOT NULL,
	balance    BIGINT NOT NULL,
	reason     TEXT   NOT NULL,
	created    BIGINT NOT NULL,
	PRIMARY KEY (tenant, account, number),
	UNIQUE (tenant, account, request_id)
);
