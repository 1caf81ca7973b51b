-- +goose Up
-- +goose StatementBegin
-- What a store keeps of each operation. The record is the binary form that all stores share; the other columns repeat
-- from it what is searched for, and are written with it. Times are microseconds since the Unix epoch on the store's
-- clock. A table with rowids: new records lie side by side, so that a group of claims, and the settles soon after,
-- touch few pages; only the index of ids is entered at random.
CREATE TABLE semel_records (
	id      BLOB    PRIMARY KEY NOT NULL, -- 48 bytes; the first 16 are the scope's
	state   INTEGER NOT NULL,             -- 1 running, 2 done, 3 free, 4 unknown
	started INTEGER NOT NULL,             -- the present run's claim
	expires INTEGER,                      -- from when on it may be swept; NULL if it waits for a decision
	sealed  INTEGER NOT NULL,             -- 1 if it has a sealed request and is running or free, so may have to be finished
	record  BLOB    NOT NULL
);
CREATE INDEX semel_records_live ON semel_records (state, started) WHERE state IN (1, 4);
CREATE INDEX semel_records_expires ON semel_records (expires) WHERE expires IS NOT NULL;
CREATE INDEX semel_records_sealed ON semel_records (state) WHERE sealed = 1;

-- The results of steps. They last as long as the operation; its record says whether there are any.
CREATE TABLE semel_steps (
	id     BLOB    NOT NULL,
	name   TEXT    NOT NULL,
	saved  INTEGER NOT NULL,
	result BLOB    NOT NULL,
	PRIMARY KEY (id, name)
) WITHOUT ROWID;
-- Flag 8 in the record's 4th byte says that there are steps: then the byte's second hexadecimal digit is 8 or more. To look
-- for the steps of records without any would cost a sweep half as much again.
CREATE TRIGGER semel_records_deleted AFTER DELETE ON semel_records WHEN substr(hex(substr(OLD.record, 4, 1)), 2) >= '8' BEGIN
	DELETE FROM semel_steps WHERE id = OLD.id;
END;

-- What operators and reconcile have decided. Rows are only added.
CREATE TABLE semel_audit (
	seq       INTEGER PRIMARY KEY AUTOINCREMENT,
	at        INTEGER NOT NULL,
	id        BLOB    NOT NULL,
	operation TEXT    NOT NULL,
	actor     TEXT    NOT NULL,
	action    TEXT    NOT NULL,
	reason    TEXT    NOT NULL,
	result    TEXT    NOT NULL
);
CREATE INDEX semel_audit_id ON semel_audit (id);

-- The outbox. Messages are added in the transactions of the application. There is one writer at a time, so they are
-- committed in the order in which they are added.
CREATE TABLE semel_outbox (
	seq      INTEGER PRIMARY KEY AUTOINCREMENT,
	id       TEXT    NOT NULL UNIQUE,
	topic    TEXT    NOT NULL,
	tenant   TEXT    NOT NULL,
	key      TEXT    NOT NULL,
	payload  BLOB    NOT NULL,
	headers  BLOB,
	sealed   INTEGER NOT NULL, -- 1 if payload and headers are encrypted
	state    INTEGER NOT NULL, -- 1 pending, 2 dead, 3 sent
	open     INTEGER NOT NULL, -- 1 if later ones of its key wait for it: it is pending, or dead and holds the key
	head     INTEGER NOT NULL, -- 1 if it waits for no other: it has no key, or is the oldest open one of its key
	attempts INTEGER NOT NULL,
	error    TEXT    NOT NULL,
	since    INTEGER NOT NULL, -- from when on it could be sent
	due      INTEGER NOT NULL, -- of a pending one: from when on it may be leased; the end of its lease if it has one
	token    BLOB,             -- of its lease; NULL if it has none
	ended    INTEGER,          -- when it was sent or died
	expires  INTEGER           -- when a sent one may be deleted
);
CREATE INDEX semel_outbox_lanes ON semel_outbox (topic, tenant, head, due) WHERE state = 1;
CREATE INDEX semel_outbox_keys ON semel_outbox (topic, tenant, key) WHERE open = 1 AND key <> '';
CREATE INDEX semel_outbox_dead ON semel_outbox (id) WHERE state = 2;
CREATE INDEX semel_outbox_sent ON semel_outbox (expires) WHERE state = 3;

-- The store itself, in one row.
CREATE TABLE semel_meta (
	one     INTEGER PRIMARY KEY CHECK (one = 1),
	version INTEGER NOT NULL, -- of this schema: the last migration
	clock   INTEGER NOT NULL, -- the latest time that was written: the clock never goes back behind it
	fence   INTEGER NOT NULL, -- a new record's fence is above it, also if deleted ones were ahead of the clock
	records INTEGER NOT NULL  -- how many there are
);
INSERT INTO semel_meta (one, version, clock, fence, records) VALUES (1, 1, 0, 0, 0);
-- +goose StatementEnd
