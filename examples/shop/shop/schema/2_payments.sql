CREATE TABLE IF NOT EXISTS payments (
	tenant     TEXT   NOT NULL,
	id         TEXT   NOT NULL,
	state      TEXT   NOT NULL,
	amount     BIGINT NOT NULL,
	currency   TEXT   NOT NULL,
	order_id   TEXT   NOT NULL,
	authorized TEXT   NOT NULL, -- as the card processor calls the authorization
	charge     TEXT   NOT NULL, -- as it calls the charge or the capture
	moving     TEXT   NOT NULL, -- row_key of the capture or void under way
	refunded   BIGINT NOT NULL CHECK (refunded >= 0 AND refunded <= amount),
	created    BIGINT NOT NULL,
	PRIMARY KEY (tenant, id)
);

-- A movement is what one operation asks of the card processor. It is here before the money moves.
CREATE TABLE IF NOT EXISTS movements (
	operation     TEXT   NOT NULL PRIMARY KEY,
	row_key       TEXT   NOT NULL UNIQUE,
	fence         BIGINT NOT NULL, -- of the run that has begun it, or up to which it never happened
	id            TEXT   NOT NULL,
	tenant        TEXT   NOT NULL,
	payment       TEXT   NOT NULL,
	kind          TEXT   NOT NULL,
	amount        BIGINT NOT NULL,
	processor_key TEXT   NOT NULL,
	state         TEXT   NOT NULL,
	receipt       TEXT   NOT NULL, -- what the card processor said
	asked         TEXT   NOT NULL, -- digest of the request
	created       BIGINT NOT NULL
);
CREATE INDEX IF NOT EXISTS movements_payment ON movements (tenant, payment);
