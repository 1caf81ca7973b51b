CREATE TABLE IF NOT EXISTS products (
	id    TEXT   NOT NULL PRIMARY KEY,
	name  TEXT   NOT NULL,
	price BIGINT NOT NULL,
	stock BIGINT NOT NULL CHECK (stock >= 0)
);

-- row_key is derived from the operation that has made the order. It is the last line of defence: a request that comes after its
-- operation was forgotten finds the row. An order that its client has named (PUT) has none: there the id is the line of defence.
-- A deleted order stays, so that no late request makes it again.
CREATE TABLE IF NOT EXISTS orders (
	tenant   TEXT   NOT NULL,
	id       TEXT   NOT NULL,
	row_key  TEXT   UNIQUE,
	state    TEXT   NOT NULL,
	version  BIGINT NOT NULL,
	currency TEXT   NOT NULL,
	total    BIGINT NOT NULL,
	lines    TEXT   NOT NULL,
	note     TEXT   NOT NULL,
	created  BIGINT NOT NULL,
	PRIMARY KEY (tenant, id)
);

CREATE INDEX IF NOT EXISTS orders_by_time ON orders (tenant, created, id);

-- Each move of an order, by the operation that made it.
CREATE TABLE IF NOT EXISTS order_moves (
	tenant   TEXT   NOT NULL,
	order_id TEXT   NOT NULL,
	row_key  TEXT   NOT NULL UNIQUE,
	move     TEXT   NOT NULL,
	at       BIGINT NOT NULL
);

INSERT INTO products (id, name, price, stock) VALUES
	('book-1', 'A book', 2450, 1000), ('pen-1', 'A pen', 190, 1000), ('mug-1', 'A mug', 1290, 1000)
	ON CONFLICT (id) DO NOTHING;
