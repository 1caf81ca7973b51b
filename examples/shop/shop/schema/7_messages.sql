
-- A message is handled once by the consumer's inbox alone, as it has to be where the effect is not a row: message is not unique here.
CREATE TABLE IF NOT EXISTS emails (
	message   TEXT   NOT NULL,
	tenant    TEXT   NOT NULL,
	recipient TEXT   NOT NULL,
	subject   TEXT   NOT NULL,
	sent      BIGINT NOT NULL
);

-- Numbers have no gaps. A refund is an invoice of a negative amount.
CREATE TABLE IF NOT EXISTS invoices (
	tenant   TEXT   NOT NULL,
	number   BIGINT NOT NULL,
	message  TEXT   NOT NULL UNIQUE,
	payment  TEXT   NOT NULL,
	amount   BIGINT NOT NULL,
	currency TEXT   NOT NULL,
	issued   BIGINT NOT NULL,
	PRIMARY KEY (tenant, number)
);

CREATE TABLE IF NOT EXISTS invoice_numbers (
	tenant TEXT   NOT NULL PRIMARY KEY,
	last   BIGINT NOT NULL
);

-- letter is a digest of consumer, message and payload: a letter that is handed over twice is there once.
CREATE TABLE IF NOT EXISTS dead_letters (
	letter   TEXT   NOT NULL PRIMARY KEY,
	consumer TEXT   NOT NULL,
	message  TEXT   NOT NULL,
	topic    TEXT   NOT NULL,
	tenant   TEXT   NOT NULL,
	payload  TEXT   NOT NULL,
	reason   TEXT   NOT NULL,
	at       BIGINT NOT NULL
);
