-- A client's id names one charge of a tenant, for ever. asked is what was asked for, as JSON.
CREATE TABLE IF NOT EXISTS charges (
	tenant    TEXT   NOT NULL,
	client_id TEXT   NOT NULL,
	id        TEXT   NOT NULL,
	asked     TEXT   NOT NULL,
	created   BIGINT NOT NULL,
	PRIMARY KEY (tenant, client_id)
);
