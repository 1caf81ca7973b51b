-- How many batches a tenant has begun: a later batch has a higher number.
CREATE TABLE IF NOT EXISTS batch_numbers (
	tenant TEXT   NOT NULL PRIMARY KEY,
	last   BIGINT NOT NULL
);

-- asked is a digest of the items.
CREATE TABLE IF NOT EXISTS batches (
	tenant  TEXT   NOT NULL,
	number  BIGINT NOT NULL,
	id      TEXT   NOT NULL,
	row_key TEXT   NOT NULL UNIQUE,
	asked   TEXT   NOT NULL,
	created BIGINT NOT NULL,
	PRIMARY KEY (tenant, number)
);

-- created, changed and batch are the numbers of the batches that have made the item, that have changed it last, and that have
-- named it last.
CREATE TABLE IF NOT EXISTS items (
	tenant         TEXT   NOT NULL,
	client_item_id TEXT   NOT NULL,
	name           TEXT   NOT NULL,
	price          BIGINT NOT NULL,
	quantity       BIGINT NOT NULL,
	created        BIGINT NOT NULL,
	changed        BIGINT NOT NULL,
	batch          BIGINT NOT NULL,
	PRIMARY KEY (tenant, client_item_id)
);
