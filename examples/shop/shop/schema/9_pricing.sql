-- Shares are in basis points: 500 is 5 %.
CREATE TABLE IF NOT EXISTS price_breaks (
	product TEXT   NOT NULL,
	least   BIGINT NOT NULL,
	share   BIGINT NOT NULL CHECK (share BETWEEN 0 AND 10000),
	PRIMARY KEY (product, least)
);

-- A coupon takes a share or an amount off.
CREATE TABLE IF NOT EXISTS coupons (
	code   TEXT   NOT NULL PRIMARY KEY,
	share  BIGINT NOT NULL CHECK (share BETWEEN 0 AND 10000),
	amount BIGINT NOT NULL CHECK (amount >= 0)
);

CREATE TABLE IF NOT EXISTS saved_prices (
	tenant  TEXT   NOT NULL,
	id      TEXT   NOT NULL,
	row_key TEXT   NOT NULL UNIQUE,
	asked   TEXT   NOT NULL,
	price   TEXT   NOT NULL,
	created BIGINT NOT NULL,
	PRIMARY KEY (tenant, id)
);

INSERT INTO price_breaks (product, least, share) VALUES ('book-1', 10, 500), ('book-1', 100, 1000), ('pen-1', 50, 1500)
	ON CONFLICT (product, least) DO NOTHING;
INSERT INTO coupons (code, share, amount) VALUES ('WELCOME', 1250, 0), ('FIVER', 0, 500)
	ON CONFLICT (code) DO NOTHING;
