CREATE TABLE IF NOT EXISTS intents (
	tenant     TEXT   NOT NULL,
	id         TEXT   NOT NULL, -- the client's
	state      TEXT   NOT NULL,
	amount     BIGINT NOT NULL,
	currency   TEXT   NOT NULL,
	order_id   TEXT   NOT NULL,
	asked      TEXT   NOT NULL,        -- digest of the request that made it
	reference  TEXT   NOT NULL UNIQUE, -- at the card processor; its keys there begin with it
	authorized TEXT   NOT NULL,        -- as the processor calls what it holds
	row_key    TEXT   UNIQUE,          -- of the operation that has confirmed or cancelled it
	let_go     BIGINT NOT NULL,        -- 1 once the money of an intent that has ended is held no longer
	expires    BIGINT NOT NULL,
	created    BIGINT NOT NULL,
	PRIMARY KEY (tenant, id)
);
CREATE INDEX IF NOT EXISTS intents_open ON intents (state, expires) WHERE let_go = 0;
