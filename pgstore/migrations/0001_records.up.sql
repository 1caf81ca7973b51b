-- +goose Up
-- +goose StatementBegin
DO $$ BEGIN
	IF to_regnamespace('{schema}') IS NULL THEN -- else the role need not be allowed to make one
		CREATE SCHEMA {schema};
	END IF;
END $$;

-- What a store keeps of each operation. Times are microseconds since the Unix epoch on the database's clock, 0 if not
-- set; durations are nanoseconds, and the largest bigint is for ever. Texts are bytes, since not all that clients send
-- is text in the database's encoding; the view "operations" shows them as text. Columns of 8 bytes come first, so that
-- none is padded.
CREATE TABLE {schema}.records (
	fence       bigint   NOT NULL, -- grows with each run
	created     bigint   NOT NULL, -- the operation's first claim
	started     bigint   NOT NULL, -- the present run's claim
	lease_end   bigint   NOT NULL,
	settled     bigint   NOT NULL,
	expires     bigint,            -- from when on sweep has to do with it; NULL if it runs or waits for a decision
	retention   bigint   NOT NULL,
	tombstone   bigint   NOT NULL,
	attempt     bigint   NOT NULL,
	answer_day  integer,           -- the partition of "answers" that has the answer, in days since the Unix epoch
	layout      smallint NOT NULL, -- the lowest version of the layout that can read the row
	state       smallint NOT NULL, -- 1 running, 2 done, 3 free, 4 unknown
	wrote       smallint NOT NULL, -- the outcome that (fence, token) settled with; 0 if it has not
	on_lost     smallint NOT NULL, -- 0 hold, 1 rerun
	begun       boolean  NOT NULL,
	maybe       boolean  NOT NULL,
	seized      boolean  NOT NULL,
	steps       boolean  NOT NULL, -- there are some in "steps"
	owed        boolean  NOT NULL, -- its end is owed to somebody who may not ask again
	id          bytea    NOT NULL PRIMARY KEY, -- 48, of which the first 16 are the scope's
	token       bytea    NOT NULL, -- 16
	fingerprint bytea    NOT NULL, -- 40: raw (16), canonical (16), settings (8)
	operation   bytea    NOT NULL,
	correlation bytea    NOT NULL,
	error       bytea    NOT NULL,
	answer      bytea, -- with a version and a checksum of its own
	sealed      bytea
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

-- Each index costs every record, so there is one only where a query would else read them all. None of these has a column
-- that a heartbeat changes, so that it is a HOT update.
-- For listLive, countRecords, and the part of sweep_1 that looks for lost runs:
CREATE INDEX records_live ON {schema}.records (started) WHERE state IN (1, 4);
-- For the part of sweep_1 that looks for what has ended, and for countRecords:
CREATE INDEX records_expires ON {schema}.records (expires) WHERE expires IS NOT NULL;
-- For listSealed:
CREATE INDEX records_sealed ON {schema}.records (started, id) WHERE sealed IS NOT NULL AND state IN (1, 3);

-- Results of steps. Only the verbs keep them in step with the records: all that add or remove steps have locked the row of
-- the record, and look here only if it says that it has steps. A constraint or a trigger would make every record pay.
CREATE TABLE {schema}.steps (
	id     bytea NOT NULL,
	name   bytea NOT NULL,
	result bytea NOT NULL,
	PRIMARY KEY (id, name)
);

-- Answers, where the option to keep them apart is used. The day is that on which they expire, so that a partition whose
-- day is over can be dropped whole, whatever the retentions of the answers in it. Those that never expire, and those for
-- whose day there is no partition yet, are in the default one.
CREATE TABLE {schema}.answers (
	day    integer NOT NULL, -- since the Unix epoch
	id     bytea   NOT NULL,
	answer bytea   NOT NULL,
	PRIMARY KEY (id, day)
) PARTITION BY RANGE (day);
CREATE TABLE {schema}.answers_default PARTITION OF {schema}.answers DEFAULT;

-- What operators and reconcile have decided. Rows are only added.
CREATE TABLE {schema}.audit (
	seq       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	at        bigint NOT NULL,
	id        bytea  NOT NULL,
	operation bytea  NOT NULL,
	actor     bytea  NOT NULL,
	action    bytea  NOT NULL,
	reason    bytea  NOT NULL,
	result    bytea  NOT NULL
);
CREATE INDEX audit_id ON {schema}.audit (id, seq);

-- The highest fence of deleted records that were ahead of the clock. A sequence, since its value is seen at once, by any
-- snapshot.
CREATE SEQUENCE {schema}.fences;

-- The outbox. Relays work on what is committed. "due" is the time at which they have to do with a pending message, 0 for
-- one that waits for nothing: a clock that is set back keeps nobody from it. "not_before" is the message's own time, of
-- its delay or after a failed attempt; "due" is later if it is behind another one of its key that waits. Of a sent message
-- "due" is the time to delete it. No index has a column that a lease changes, and there is room for a second version of
-- each row, so that a lease is a HOT update.
CREATE TABLE {schema}.outbox (
	seq        bigint   NOT NULL GENERATED ALWAYS AS IDENTITY, -- the order
	since      bigint   NOT NULL, -- from when on it could be sent
	not_before bigint   NOT NULL,
	due        bigint   NOT NULL,
	lease_end  bigint   NOT NULL, -- 0: it is not leased
	ended      bigint   NOT NULL, -- when it was sent or died
	attempts   integer  NOT NULL,
	state      smallint NOT NULL, -- 1 pending, 2 dead, 3 sent
	holds      boolean  NOT NULL, -- it is dead and keeps later ones of its key back
	sealed     boolean  NOT NULL, -- headers and payload are encrypted
	token      bytea, -- of the lease
	id         text COLLATE "C" NOT NULL PRIMARY KEY,
	topic      text COLLATE "C" NOT NULL,
	key        text COLLATE "C" NOT NULL, -- empty: none
	tenant     text COLLATE "C" NOT NULL, -- empty: none
	error      text COLLATE "C" NOT NULL, -- of the last attempt
	headers    bytea, -- a JSON object, if it is not encrypted
	payload    bytea NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

CREATE INDEX outbox_due ON {schema}.outbox (topic, tenant, due, seq) WHERE state = 1;
CREATE INDEX outbox_key ON {schema}.outbox (topic, tenant, key, seq) WHERE key <> '' AND (state = 1 OR holds);
CREATE INDEX outbox_dead ON {schema}.outbox (id) WHERE state = 2;
CREATE INDEX outbox_sent ON {schema}.outbox (due) WHERE state = 3;

-- The outbox in the words of Debezium's outbox event router.
CREATE VIEW {schema}.outbox_events AS SELECT
	id, topic AS aggregatetype, key AS aggregateid, topic AS type, payload, tenant,
	CASE WHEN NOT sealed THEN convert_from(headers, 'UTF8')::jsonb END AS headers,
	timestamptz '1970-01-01 00:00:00+00' + since / 1000000 * interval '1 second' + since % 1000000 * interval '1 microsecond' AS timestamp
FROM {schema}.outbox;

-- The store itself, in one row.
CREATE TABLE {schema}.meta (
	one      boolean PRIMARY KEY CHECK (one),
	version  integer NOT NULL, -- of this schema: the last migration
	readable integer NOT NULL  -- the lowest version of the package's schema that can work with it
);
INSERT INTO {schema}.meta (one, version, readable) VALUES (true, 1, 1);

-- The functions below are the verbs, by the rules of the same names in Go: each decides at the database's clock, reads
-- without a lock, and inserts or compares and sets; where that was raced, it begins again. Their names carry a version,
-- so that a later schema can have both theirs and those that a running program of an older version calls.

-- The database's clock. A double is exact to the microsecond until the year 2106, and costs less than numeric.
CREATE FUNCTION {schema}.clock_1() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE AS
	$$ SELECT (date_part('epoch', clock_timestamp()) * 1000000::float8)::bigint $$;

-- A time moved by nanoseconds; no later than the largest time, which never comes.
CREATE FUNCTION {schema}.after_1(at bigint, ns bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
	$$ SELECT CASE WHEN ns = 9223372036854775807 OR at > 9223372036854775807 - ns / 1000 THEN 9223372036854775807 ELSE at + ns / 1000 END $$;

-- From when on sweep has to do with a record that ended, or begun and lapsed, at a time.
CREATE FUNCTION {schema}.expires_1(ended bigint, retention bigint, tombstone bigint, payload boolean) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
	$$ SELECT CASE WHEN payload THEN {schema}.after_1(ended, retention) ELSE {schema}.after_1({schema}.after_1(ended, retention), tombstone) END $$;

-- Seven retentions, for what may still be finished without its client.
CREATE FUNCTION {schema}.seven_1(retention bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
	$$ SELECT CASE WHEN retention > 9223372036854775807 / 7 THEN 9223372036854775807 ELSE retention * 7 END $$;

-- From when on sweep has to do with a record that was released at a time.
CREATE FUNCTION {schema}.freed_1(settled bigint, retention bigint, owed boolean, steps boolean) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
	SELECT {schema}.after_1(settled, CASE
		WHEN owed THEN {schema}.seven_1(retention)
		WHEN steps THEN greatest(retention, 3600000000000)
		ELSE 3600000000000
	END) $$;

-- What a verb found, or has written.
CREATE TYPE {schema}.found_1 AS (
	owned       boolean,
	written     boolean,  -- by this call; the answer is then left out
	clock       bigint,
	layout      smallint, -- NULL: there is no record
	state       smallint,
	wrote       smallint,
	on_lost     smallint,
	begun       boolean,
	maybe       boolean,
	seized      boolean,
	steps       boolean,
	owed        boolean,
	fence       bigint,
	attempt     bigint,
	created     bigint,
	started     bigint,
	lease_end   bigint,
	settled     bigint,
	retention   bigint,
	tombstone   bigint,
	answer_day  integer,
	token       bytea,
	fingerprint bytea,
	operation   bytea,
	correlation bytea,
	error       bytea,
	answer      bytea,
	sealed      bytea
);

CREATE FUNCTION {schema}.load_1(p_id bytea) RETURNS {schema}.found_1 LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	t bigint := {schema}.clock_1(); -- before the record is read: a lease that is extended meanwhile must not seem to be over
	v {schema}.found_1;
BEGIN
	SELECT false, false, greatest(t, r.started, r.settled), {columns} INTO v FROM {schema}.records r WHERE r.id = p_id;
	IF NOT FOUND THEN
		v.owned := false;
		v.clock := t;
	ELSIF v.answer_day IS NOT NULL THEN
		SELECT a.answer INTO v.answer FROM {schema}.answers a WHERE a.id = p_id AND a.day = v.answer_day;
	END IF;
	RETURN v;
END $$;

CREATE FUNCTION {schema}.claim_1(
	p_id bytea, p_token bytea, p_fingerprint bytea, p_on_lost smallint, p_lease bigint, p_retention bigint, p_tombstone bigint,
	p_operation bytea, p_correlation bytea, p_sealed bytea
) RETURNS {schema}.found_1 LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	t         bigint;
	v         {schema}.found_1;
	same      boolean; -- the request
	fresh     boolean;
	had_steps boolean;
	had_day   integer;
	mark      bigint;
BEGIN
	FOR tries IN 1..100 LOOP
		t := {schema}.clock_1();
		SELECT false, false, greatest(t, r.started, r.settled), {columns} INTO v FROM {schema}.records r WHERE r.id = p_id;
		IF NOT FOUND THEN
			IF current_setting('synchronous_commit') = 'off' THEN
				PERFORM set_config('synchronous_commit', 'on', true);
			END IF;
			INSERT INTO {schema}.records AS r (
				fence, created, started, lease_end, settled, retention, tombstone, attempt, layout, state, wrote, on_lost,
				begun, maybe, seized, steps, owed, id, token, fingerprint, operation, correlation, error, sealed
			) VALUES (
				t / 1000, t, t, {schema}.after_1(t, p_lease), 0, p_retention, p_tombstone, 1, 1, 1, 0, p_on_lost,
				false, false, false, false, false, p_id, p_token, p_fingerprint, p_operation, p_correlation, '', p_sealed
			) ON CONFLICT (id) DO NOTHING RETURNING true, true, t, {columns} INTO v;
			IF FOUND THEN
				-- Asked after the insert, which has waited for a deletion under way.
				SELECT last_value INTO mark FROM {schema}.fences;
				IF mark >= v.fence OR {schema}.clock_1() > t + 5000000 THEN
					v.fence := greatest(mark + 1, {schema}.clock_1() / 1000);
					UPDATE {schema}.records r SET fence = v.fence WHERE r.id = p_id;
				END IF;
				RETURN v;
			END IF;
			CONTINUE;
		END IF;

		same := substr(v.fingerprint, 1, 16) = substr(p_fingerprint, 1, 16) OR substr(v.fingerprint, 17) = substr(p_fingerprint, 17);
		IF v.state = 2 THEN
			fresh := v.clock >= {schema}.expires_1(v.settled, v.retention, v.tombstone, false);
		ELSIF v.state = 3 THEN -- released, and it remembers nothing: its key has not been used
			fresh := NOT (same OR v.maybe OR v.steps OR v.owed OR v.token = p_token);
		ELSE
			fresh := v.state = 1 AND v.begun AND v.clock >= {schema}.expires_1(v.lease_end, v.retention, v.tombstone, false);
		END IF;
		IF v.layout > 1 OR NOT (fresh
			OR same AND CASE
				WHEN v.state = 1 AND v.token = p_token THEN -- its own claim, whose reply was lost
					NOT v.begun OR v.clock < {schema}.after_1(v.lease_end, v.retention)
				WHEN v.state = 1 AND v.token <> p_token THEN
					v.clock >= v.lease_end AND NOT v.begun AND v.on_lost = 1 AND p_on_lost = 1
				WHEN v.state = 3 AND v.token <> p_token THEN -- a token once settled is spent
					NOT (v.maybe AND p_on_lost = 0)
				ELSE false
			END)
		THEN
			IF v.answer_day IS NOT NULL THEN
				SELECT a.answer INTO v.answer FROM {schema}.answers a WHERE a.id = p_id AND a.day = v.answer_day;
			END IF;
			RETURN v;
		END IF;

		IF current_setting('synchronous_commit') = 'off' THEN
			PERFORM set_config('synchronous_commit', 'on', true);
		END IF;
		t := v.clock;
		IF fresh THEN
			had_steps := v.steps;
			had_day := v.answer_day;
			UPDATE {schema}.records r SET
				fence = v.fence + 1, created = t, started = t, lease_end = {schema}.after_1(t, p_lease), settled = 0, expires = NULL,
				retention = p_retention, tombstone = p_tombstone, attempt = 1, answer_day = NULL, layout = 1, state = 1, wrote = 0,
				on_lost = p_on_lost, begun = false, maybe = false, seized = false, steps = false, owed = false, token = p_token,
				fingerprint = p_fingerprint, operation = p_operation, correlation = p_correlation, error = '', answer = NULL,
				sealed = p_sealed
			WHERE r.id = p_id AND r.state = v.state AND r.fence = v.fence AND r.token = v.token
				AND r.lease_end = v.lease_end AND r.begun = v.begun AND r.steps = v.steps
			RETURNING true, true, t, {columns} INTO v;
			IF FOUND THEN
				IF had_steps THEN
					DELETE FROM {schema}.steps s WHERE s.id = p_id;
				END IF;
				IF had_day IS NOT NULL THEN -- not before: it may be the answer of whoever has begun afresh meanwhile
					DELETE FROM {schema}.answers a WHERE a.id = p_id AND a.day = had_day;
				END IF;
				RETURN v;
			END IF;
		ELSIF v.token = p_token THEN
			UPDATE {schema}.records r SET lease_end = {schema}.after_1(t, p_lease)
			WHERE r.id = p_id AND r.state = v.state AND r.fence = v.fence AND r.token = v.token
				AND r.lease_end = v.lease_end AND r.begun = v.begun
			RETURNING true, true, t, {columns} INTO v;
		ELSE
			UPDATE {schema}.records r SET
				fence = v.fence + 1, started = t, lease_end = {schema}.after_1(t, p_lease), settled = 0, expires = NULL,
				retention = p_retention, tombstone = p_tombstone, attempt = v.attempt + 1, state = 1, wrote = 0, on_lost = p_on_lost,
				maybe = v.maybe OR v.state = 1, owed = v.owed OR v.state = 1 AND v.sealed IS NOT NULL, seized = false,
				token = p_token, correlation = p_correlation
			WHERE r.id = p_id AND r.state = v.state AND r.fence = v.fence AND r.token = v.token
				AND r.lease_end = v.lease_end AND r.begun = v.begun
			RETURNING true, true, t, {columns} INTO v;
		END IF;
		IF FOUND THEN
			RETURN v;
		END IF;
	END LOOP;
	RAISE EXCEPTION 'the record changed under each of 100 attempts to claim it' USING ERRCODE = '40001';
END $$;

-- NULL: a later version's record.
CREATE FUNCTION {schema}.extend_1(p_id bytea, p_fence bigint, p_token bytea, p_lease bigint, p_begun boolean) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	IF current_setting('synchronous_commit') = 'off' THEN
		PERFORM set_config('synchronous_commit', 'on', true);
	END IF;
	UPDATE {schema}.records r SET lease_end = {schema}.after_1({schema}.clock_1(), p_lease), begun = r.begun OR p_begun
	WHERE r.id = p_id AND r.state = 1 AND r.fence = p_fence AND r.token = p_token AND r.layout <= 1;
	IF FOUND THEN
		RETURN true;
	ELSIF EXISTS (SELECT FROM {schema}.records r WHERE r.id = p_id AND r.layout > 1) THEN
		RETURN NULL;
	END IF;
	RETURN false;
END $$;

-- With p_retention above 0 a record that is done is kept so long, and not as its claim said.
-- With p_strict a settle that is not owned fails with SM001, so that a COMMIT that was sent along becomes a rollback.
-- With p_apart the answer goes into the table "answers". With p_notify those who listen are told the id.
CREATE FUNCTION {schema}.settle_1(
	p_id bytea, p_fence bigint, p_token bytea, p_above boolean, p_state smallint, p_owed boolean, p_retention bigint,
	p_error bytea, p_answer bytea, p_strict boolean, p_apart boolean, p_notify boolean
) RETURNS {schema}.found_1 LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	t         bigint;
	v         {schema}.found_1;
	v_state   smallint;
	v_answer  bytea;
	v_expires bigint;
	v_day     integer;
	v_owed    boolean;
BEGIN
	FOR tries IN 1..100 LOOP
		t := {schema}.clock_1();
		SELECT false, false, greatest(t, r.started, r.settled), {columns} INTO v FROM {schema}.records r WHERE r.id = p_id;
		IF NOT FOUND THEN
			v.owned := false;
			v.clock := t;
		ELSIF v.layout > 1 THEN
			v.owned := false;
		ELSIF v.token = p_token AND (p_above AND v.fence > p_fence OR NOT p_above AND v.fence = p_fence)
			AND (p_state IN (2, 4) AND NOT p_above OR p_state = 3)
		THEN
			IF v.state = 1 OR v.state = 4 AND v.seized AND NOT p_above THEN
				t := v.clock;
				v_state := CASE WHEN v.begun THEN 2 ELSE p_state END;
				v_answer := CASE WHEN p_state = 2 THEN p_answer END;
				IF p_state = 2 AND p_retention > 0 THEN
					v.retention := p_retention;
				END IF;
				v_owed := v_state <> 2 AND (v.owed OR p_owed AND NOT p_above);
				v_expires := CASE v_state
					WHEN 2 THEN {schema}.expires_1(t, v.retention, v.tombstone, v_answer IS NOT NULL OR v.steps)
					WHEN 3 THEN {schema}.freed_1(t, v.retention, v_owed, v.steps)
				END;
				v_day := NULL;
				IF p_apart AND v_answer IS NOT NULL THEN
					v_day := least({schema}.after_1(t, v.retention) / 86400000000, 2147483646);
				END IF;
				IF current_setting('synchronous_commit') = 'off' THEN
					PERFORM set_config('synchronous_commit', 'on', true);
				END IF;
				UPDATE {schema}.records r SET
					state = v_state, wrote = p_state, settled = t, error = p_error, seized = false, owed = v_owed,
					expires = nullif(v_expires, 9223372036854775807), retention = v.retention,
					answer = CASE WHEN v_day IS NULL THEN v_answer END, answer_day = v_day,
					sealed = CASE WHEN v_state <> 2 THEN v.sealed END,
					maybe = CASE WHEN v_state = 2 OR v_state = 3 AND v.seized THEN false
						ELSE v.maybe OR v_state = 3 AND NOT p_above AND v.on_lost = 1 END,
					attempt = v.attempt - CASE WHEN v_state = 3 AND NOT v.seized AND p_above THEN 1 ELSE 0 END
				WHERE r.id = p_id AND r.state = v.state AND r.fence = v.fence AND r.token = v.token AND r.begun = v.begun
					AND r.seized = v.seized AND r.steps = v.steps
				RETURNING true, true, t, {columns} INTO v;
				IF NOT FOUND THEN
					CONTINUE;
				END IF;
				IF v_day IS NOT NULL THEN
					INSERT INTO {schema}.answers (day, id, answer) VALUES (v_day, p_id, v_answer)
					ON CONFLICT (id, day) DO UPDATE SET answer = excluded.answer;
				END IF;
				IF p_notify THEN
					PERFORM pg_notify({channel}, encode(p_id, 'base64'));
				END IF;
				v.answer := NULL;
				RETURN v;
			END IF;
			v.owned := v.wrote = p_state;
		END IF;
		IF p_strict AND NOT v.owned THEN
			RAISE EXCEPTION 'the record is not owned' USING ERRCODE = 'SM001';
		END IF;
		IF v.answer_day IS NOT NULL THEN
			SELECT a.answer INTO v.answer FROM {schema}.answers a WHERE a.id = p_id AND a.day = v.answer_day;
		END IF;
		RETURN v;
	END LOOP;
	RAISE EXCEPTION 'the record changed under each of 100 attempts to settle it' USING ERRCODE = '40001';
END $$;

CREATE FUNCTION {schema}.seize_1(p_id bytea, p_token bytea) RETURNS {schema}.found_1 LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	t bigint;
	v {schema}.found_1;
BEGIN
	FOR tries IN 1..100 LOOP
		v := {schema}.load_1(p_id);
		IF v.layout IS NULL OR v.layout > 1 OR v.state = 4 AND v.seized AND v.token = p_token
			OR NOT (v.state = 1 AND (NOT v.begun OR v.clock < v.lease_end) OR v.state = 4 OR v.state = 3 AND v.maybe)
		THEN
			RETURN v;
		END IF;
		IF current_setting('synchronous_commit') = 'off' THEN
			PERFORM set_config('synchronous_commit', 'on', true);
		END IF;
		t := v.clock;
		UPDATE {schema}.records r SET
			state = 4, seized = true, wrote = 0, fence = v.fence + 1, token = p_token, settled = t, expires = NULL,
			owed = v.owed OR v.state = 1 AND v.sealed IS NOT NULL
		WHERE r.id = p_id AND r.state = v.state AND r.fence = v.fence AND r.token = v.token AND r.lease_end = v.lease_end
			AND r.begun = v.begun AND r.seized = v.seized
		RETURNING true, true, t, {columns} INTO v;
		IF FOUND THEN
			RETURN v;
		END IF;
	END LOOP;
	RAISE EXCEPTION 'the record changed under each of 100 attempts to seize it' USING ERRCODE = '40001';
END $$;

-- Notes the fence of a record that is being deleted, if that of a new one, which comes from the clock, might not be above
-- it. claim_1 corrects the fence of a new record if it has not come to write it within 5 s.
CREATE FUNCTION {schema}.outlive_1(p_fence bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	IF p_fence >= {schema}.clock_1() / 1000 - 10000 THEN
		PERFORM pg_advisory_xact_lock('{schema}.fences'::regclass::oid::integer, 0);
		PERFORM setval('{schema}.fences', p_fence) FROM {schema}.fences f WHERE f.last_value < p_fence;
	END IF;
END $$;

-- NULL: a later version's record.
CREATE FUNCTION {schema}.forget_1(p_id bytea, p_fence bigint, p_token bytea) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	v {schema}.found_1;
BEGIN
	FOR tries IN 1..100 LOOP
		v := {schema}.load_1(p_id);
		IF v.layout > 1 THEN
			RETURN NULL;
		ELSIF v.layout IS NULL OR v.fence <> p_fence OR v.token <> p_token
			OR NOT (v.state IN (2, 3) OR v.state = 4 AND v.seized OR v.state = 1 AND v.begun AND v.clock >= v.lease_end)
		THEN
			RETURN false;
		END IF;
		IF current_setting('synchronous_commit') = 'off' THEN
			PERFORM set_config('synchronous_commit', 'on', true);
		END IF;
		DELETE FROM {schema}.records r
		WHERE r.id = p_id AND r.state = v.state AND r.fence = v.fence AND r.token = v.token AND r.lease_end = v.lease_end
			AND r.begun = v.begun AND r.seized = v.seized
		RETURNING r.steps INTO v.steps;
		IF FOUND THEN
			IF v.steps THEN
				DELETE FROM {schema}.steps s WHERE s.id = p_id;
			END IF;
			IF v.answer_day IS NOT NULL THEN
				DELETE FROM {schema}.answers a WHERE a.id = p_id AND a.day = v.answer_day;
			END IF;
			PERFORM {schema}.outlive_1(v.fence);
			RETURN true;
		END IF;
	END LOOP;
	RAISE EXCEPTION 'the record changed under each of 100 attempts to forget it' USING ERRCODE = '40001';
END $$;

-- The lock of the record's row keeps off whoever would end the run or take it over; it is taken of that owner's record only.
-- NULL: a later version's record.
CREATE FUNCTION {schema}.save_step_1(p_id bytea, p_fence bigint, p_token bytea, p_name bytea, p_result bytea) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	had_steps boolean;
BEGIN
	SELECT r.steps INTO had_steps FROM {schema}.records r
	WHERE r.id = p_id AND r.state = 1 AND r.fence = p_fence AND r.token = p_token AND r.layout <= 1 FOR NO KEY UPDATE;
	IF NOT FOUND THEN
		IF EXISTS (SELECT FROM {schema}.records r WHERE r.id = p_id AND r.layout > 1) THEN
			RETURN NULL;
		END IF;
		RETURN false;
	END IF;
	IF current_setting('synchronous_commit') = 'off' THEN
		PERFORM set_config('synchronous_commit', 'on', true);
	END IF;
	IF NOT had_steps THEN -- what is there was left by a record that was deleted by hand
		DELETE FROM {schema}.steps s WHERE s.id = p_id;
	END IF;
	-- At a stricter level than READ COMMITTED whoever deletes the steps would not see this one in an older snapshot, unless
	-- the row of the record has changed too.
	IF NOT had_steps OR current_setting('transaction_isolation') <> 'read committed' THEN
		UPDATE {schema}.records r SET steps = true WHERE r.id = p_id;
	END IF;
	INSERT INTO {schema}.steps (id, name, result) VALUES (p_id, p_name, p_result) ON CONFLICT (id, name) DO NOTHING;
	RETURN true;
END $$;

-- What sweep has to do with a running record of which nobody has to decide, and when.
CREATE FUNCTION {schema}.lost_1(begun boolean, lease_end bigint, retention bigint, tombstone bigint, payload boolean) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
	SELECT CASE
		WHEN begun THEN {schema}.expires_1(lease_end, retention, tombstone, payload)
		WHEN payload THEN {schema}.after_1(lease_end, {schema}.seven_1(retention)) -- it may still be finished
		ELSE {schema}.after_1(lease_end, retention)
	END $$;

-- Deletes or strips at most so many records, those that are due first. One that a claim has just started, or another
-- sweeper has taken, is passed over. With its own plan for each limit, since a general one may read all records.
CREATE FUNCTION {schema}.sweep_1(p_limit integer) RETURNS integer LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_custom_plan AS $$
DECLARE
	t        bigint := {schema}.clock_1();
	gone     bytea[];
	stripped bytea[];
	stepped  bytea[];
	changed  integer;
	highest  bigint;
BEGIN
	SELECT array_agg(d.id) FILTER (WHERE NOT d.strip), array_agg(d.id) FILTER (WHERE d.strip), array_agg(d.id) FILTER (WHERE d.steps), count(*)
	INTO gone, stripped, stepped, changed
	FROM (
		SELECT r.id, r.steps, r.state = 2 AND t < {schema}.expires_1(r.settled, r.retention, r.tombstone, false) AS strip
		FROM {schema}.records r
		WHERE r.expires <= t AND r.layout <= 1
		ORDER BY r.expires LIMIT p_limit FOR UPDATE SKIP LOCKED
	) d;
	IF changed < p_limit THEN
		SELECT gone || array_agg(d.id) FILTER (WHERE NOT d.strip), stripped || array_agg(d.id) FILTER (WHERE d.strip),
			stepped || array_agg(d.id) FILTER (WHERE d.steps), changed + count(*)
		INTO gone, stripped, stepped, changed
		FROM (
			SELECT r.id, r.steps, r.begun AND t < {schema}.expires_1(r.lease_end, r.retention, r.tombstone, false) AS strip
			FROM {schema}.records r
			WHERE r.state = 1 AND (r.on_lost = 1 OR r.begun) AND r.layout <= 1
				AND {schema}.lost_1(r.begun, r.lease_end, r.retention, r.tombstone, r.sealed IS NOT NULL OR r.steps) <= t
			ORDER BY r.started LIMIT p_limit - changed FOR UPDATE SKIP LOCKED
		) d;
	END IF;
	IF changed = 0 THEN
		RETURN 0;
	END IF;
	IF stripped IS NOT NULL THEN
		UPDATE {schema}.records r SET
			answer = NULL, answer_day = NULL, sealed = NULL, steps = false,
			expires = CASE WHEN r.state = 2 THEN nullif({schema}.expires_1(r.settled, r.retention, r.tombstone, false), 9223372036854775807) END
		WHERE r.id = ANY (stripped);
	END IF;
	IF gone IS NOT NULL THEN
		WITH deleted AS (DELETE FROM {schema}.records r WHERE r.id = ANY (gone) RETURNING r.fence)
		SELECT max(d.fence) INTO highest FROM deleted d;
		PERFORM {schema}.outlive_1(highest);
	END IF;
	IF stepped IS NOT NULL THEN
		DELETE FROM {schema}.steps s WHERE s.id = ANY (stepped);
	END IF;
	-- Answers in a partition of a day go with it.
	DELETE FROM {schema}.answers_default a WHERE a.id = ANY (gone || stripped);
	RETURN changed;
END $$;

-- Makes the partitions of the days ahead, and drops those whose day has been over for an hour. It waits for no lock for
-- long: what it can't do now is left to the next call.
CREATE FUNCTION {schema}.partition_1(p_ahead integer) RETURNS void LANGUAGE plpgsql VOLATILE SET lock_timeout = '200ms' AS $$
DECLARE
	t    bigint := {schema}.clock_1();
	part text;
BEGIN
	IF NOT pg_try_advisory_xact_lock('{schema}.answers'::regclass::oid::integer, 0) THEN
		RETURN;
	END IF;
	FOR day IN t / 86400000000 .. t / 86400000000 + p_ahead LOOP
		part := format('{schema}.%I', 'answers_' || to_char(date '1970-01-01' + day, 'YYYYMMDD'));
		CONTINUE WHEN to_regclass(part) IS NOT NULL;
		BEGIN
			EXECUTE format('CREATE TABLE %s PARTITION OF {schema}.answers FOR VALUES FROM (%s) TO (%s)', part, day, day + 1);
		EXCEPTION WHEN lock_not_available OR check_violation THEN
			NULL; -- there are answers of the day in the default partition, which serves them as well
		END;
	END LOOP;
	FOR part IN
		SELECT format('{schema}.%I', c.relname) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = '{schema}.answers'::regclass AND c.relname ~ '^answers_\d{8}$'
			AND extract(epoch FROM to_date(right(c.relname, 8), 'YYYYMMDD') + 1) * 1000000 + 3600000000 <= t
	LOOP
		BEGIN
			EXECUTE 'DROP TABLE ' || part;
		EXCEPTION WHEN lock_not_available THEN
			NULL;
		END;
	END LOOP;
END $$;

CREATE FUNCTION {schema}.audit_1(p_id bytea, p_operation bytea, p_actor bytea, p_action bytea, p_reason bytea, p_result bytea) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	IF current_setting('synchronous_commit') = 'off' THEN
		PERFORM set_config('synchronous_commit', 'on', true);
	END IF;
	INSERT INTO {schema}.audit (at, id, operation, actor, action, reason, result)
	VALUES ({schema}.clock_1(), p_id, p_operation, p_actor, p_action, p_reason, p_result);
END $$;

CREATE FUNCTION {schema}.text_1(b bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	RETURN convert_from(b, 'UTF8');
EXCEPTION WHEN OTHERS THEN
	RETURN encode(b, 'escape');
END $$;

CREATE FUNCTION {schema}.time_1(at bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS
	$$ SELECT CASE WHEN at <> 0 THEN timestamptz '1970-01-01 00:00:00+00' + at / 1000000 * interval '1 second' + at % 1000000 * interval '1 microsecond' END $$;

-- The records for people, with the ids that the problem documents and the command-line tool show.
CREATE VIEW {schema}.operations AS SELECT
	translate(encode(id, 'base64'), '+/', '-_') AS id,
	(ARRAY['running', 'done', 'free', 'unknown'])[state] AS state,
	CASE on_lost WHEN 0 THEN 'hold' WHEN 1 THEN 'rerun' END AS on_lost,
	begun, maybe, seized, steps, owed, attempt, fence,
	{schema}.text_1(operation) AS operation,
	{schema}.text_1(correlation) AS correlation,
	{schema}.text_1(error) AS error,
	{schema}.time_1(created) AS created,
	{schema}.time_1(started) AS started,
	{schema}.time_1(lease_end) AS lease_end,
	{schema}.time_1(settled) AS settled,
	{schema}.time_1(nullif(expires, 9223372036854775807)) AS expires,
	octet_length(answer) AS answer_bytes,
	answer_day IS NOT NULL AS answer_apart,
	octet_length(sealed) AS sealed_bytes
FROM {schema}.records;

-- Transactions

-- What insertDone has to do in rare cases with the record that it has just written: it must not be lost in a crash, and
-- its fence must be above those of deleted ones. Returns the fence.
CREATE FUNCTION {schema}.inserted_1(p_id bytea, p_fence bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	mark bigint := pg_sequence_last_value('{schema}.fences'::regclass);
BEGIN
	IF current_setting('synchronous_commit') = 'off' THEN
		PERFORM set_config('synchronous_commit', 'on', true);
	END IF;
	IF mark >= p_fence THEN
		UPDATE {schema}.records r SET fence = mark + 1 WHERE r.id = p_id;
		RETURN mark + 1;
	END IF;
	RETURN p_fence;
END $$;

-- The end of a run in one-commit mode. It writes the whole record, if that still is what the transaction found or is gone:
-- p_was_fence is NULL if there was none. Else it fails with SM001, so that a COMMIT that was sent along becomes a rollback.
-- It returns when it was, and the fence that the record has.
CREATE FUNCTION {schema}.finish_1(
	p_id bytea, p_was_state smallint, p_was_fence bigint, p_was_token bytea, p_was_lease_end bigint, p_was_steps boolean,
	p_fence bigint, p_created bigint, p_started bigint, p_lease_end bigint, p_retention bigint, p_tombstone bigint, p_attempt bigint,
	p_state smallint, p_wrote smallint, p_on_lost smallint, p_maybe boolean, p_steps boolean, p_owed boolean, p_token bytea,
	p_fingerprint bytea, p_operation bytea, p_correlation bytea, p_error bytea, p_answer bytea, p_sealed bytea, p_apart boolean, p_notify boolean,
	OUT t bigint, OUT v_fence bigint
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	written   boolean;
	mark      bigint;
	v_expires bigint;
	v_day     integer;
BEGIN
	t := greatest({schema}.clock_1(), p_started);
	v_fence := p_fence;
	IF current_setting('synchronous_commit') = 'off' THEN
		PERFORM set_config('synchronous_commit', 'on', true);
	END IF;
	v_expires := CASE p_state
		WHEN 2 THEN {schema}.expires_1(t, p_retention, p_tombstone, p_answer IS NOT NULL OR p_steps)
		WHEN 3 THEN {schema}.freed_1(t, p_retention, p_owed, p_steps)
	END;
	IF p_apart AND p_answer IS NOT NULL THEN
		v_day := least({schema}.after_1(t, p_retention) / 86400000000, 2147483646);
	END IF;
	written := false;
	IF p_was_fence IS NULL THEN
		v_fence := greatest(p_fence, t / 1000); -- above those of records that have come and gone meanwhile
	ELSE
		DELETE FROM {schema}.answers a WHERE a.id = p_id;
		UPDATE {schema}.records r SET
			fence = v_fence, created = p_created, started = p_started, lease_end = p_lease_end, settled = t,
			expires = nullif(v_expires, 9223372036854775807), retention = p_retention, tombstone = p_tombstone, attempt = p_attempt,
			answer_day = v_day, layout = 1, state = p_state, wrote = p_wrote, on_lost = p_on_lost, begun = false, maybe = p_maybe,
			seized = false, steps = p_steps, owed = p_owed, token = p_token, fingerprint = p_fingerprint, operation = p_operation,
			correlation = p_correlation, error = p_error, answer = CASE WHEN v_day IS NULL THEN p_answer END, sealed = p_sealed
		WHERE r.id = p_id AND r.state = p_was_state AND r.fence = p_was_fence AND r.token = p_was_token
			AND r.lease_end = p_was_lease_end AND r.steps = p_was_steps;
		written := FOUND;
		IF written AND p_was_steps AND NOT p_steps THEN
			DELETE FROM {schema}.steps s WHERE s.id = p_id;
		END IF;
	END IF;
	IF NOT written THEN -- there was none, or it was swept
		INSERT INTO {schema}.records (
			fence, created, started, lease_end, settled, expires, retention, tombstone, attempt, answer_day, layout, state, wrote,
			on_lost, begun, maybe, seized, steps, owed, id, token, fingerprint, operation, correlation, error, answer, sealed
		) VALUES (
			v_fence, p_created, p_started, p_lease_end, t, nullif(v_expires, 9223372036854775807), p_retention, p_tombstone, p_attempt,
			v_day, 1, p_state, p_wrote, p_on_lost, false, p_maybe, false, false, p_owed, p_id, p_token, p_fingerprint, p_operation, p_correlation,
			p_error, CASE WHEN v_day IS NULL THEN p_answer END, p_sealed
		) ON CONFLICT (id) DO NOTHING;
		IF NOT FOUND THEN
			RAISE EXCEPTION 'the record is not owned' USING ERRCODE = 'SM001';
		END IF;
		-- Asked after the insert, which has waited for a deletion under way.
		mark := pg_sequence_last_value('{schema}.fences'::regclass);
		IF mark >= v_fence THEN
			v_fence := mark + 1;
			UPDATE {schema}.records r SET fence = v_fence WHERE r.id = p_id;
		END IF;
	END IF;
	IF v_day IS NOT NULL THEN
		INSERT INTO {schema}.answers (day, id, answer) VALUES (v_day, p_id, p_answer);
	END IF;
	IF p_notify THEN
		PERFORM pg_notify({channel}, encode(p_id, 'base64'));
	END IF;
END $$;

-- The outbox

-- Adds a message in the transaction of its caller.
CREATE FUNCTION {schema}.outbox_add_1(p_id text, p_topic text, p_key text, p_tenant text, p_headers bytea, p_payload bytea, p_sealed boolean, p_delay bigint, p_notify boolean)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	t      bigint := {schema}.clock_1();
	v_time bigint := {schema}.after_1(t, p_delay);
	v_due  bigint := CASE WHEN p_delay > 0 THEN v_time ELSE 0 END;
BEGIN
	INSERT INTO {schema}.outbox (since, not_before, due, lease_end, ended, attempts, state, holds, sealed, id, topic, key, tenant, error, headers, payload)
	VALUES (v_time, v_due, v_due, 0, 0, 0, 1, false, p_sealed, p_id, p_topic, p_key, p_tenant, '', p_headers, p_payload);
	IF p_notify THEN
		PERFORM pg_notify({outbox_channel}, '');
	END IF;
END $$;

-- Leases messages, lane by lane, from the lane behind (p_topic, p_tenant) on. It passes over a lane at which somebody else
-- looks, since both would choose the oldest messages, and one in vain; if it has leased nothing else, it returns a row of
-- nulls. Of each lane it first reads candidates, and then, in a later snapshot, chooses those whose older unsent ones of the
-- same key are all among them. It locks what it has chosen, and leaves out what is not as it was, with all that is behind
-- that: nobody else can lease, send or put back what it has locked. So a look that finds nothing to lease writes nothing. A
-- crash of the server may lose the lease, which only makes others send the messages again, so the commit does not wait for
-- the disk. Its plans must not depend on what the table once was: "state + 0" is not the state of which outbox_due knows
-- something.
CREATE FUNCTION {schema}.outbox_lease_1(
	p_token bytea, p_lease bigint, p_topic text, p_tenant text, p_lanes integer, p_limit integer, p_max integer, p_bytes bigint,
	p_skip text[], p_topics text[], p_tenants text[], p_limits bigint[]
) RETURNS SETOF {schema}.outbox LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	t        bigint := {schema}.clock_1();
	v_end    bigint := {schema}.after_1(t, p_lease);
	begin_topic  text COLLATE "C" := p_topic;
	begin_tenant text COLLATE "C" := p_tenant;
	v_topic  text COLLATE "C" := p_topic;
	v_tenant text COLLATE "C" := p_tenant;
	skipped  boolean := false; -- all of v_topic
	wrapped  boolean := false;
	busy     boolean := false; -- somebody else looks at a lane
	lane     record;
	room     bigint; -- how many of the lane may be leased
	total    bigint := 0;
	lanes    integer := 0;
	moved    integer; -- to the time of what they are behind
	look     integer;
	timed    record; -- candidates whose time has come
	fresh    record; -- candidates without a time
	timed_due bigint;
	timed_seq bigint;
	fresh_seq bigint;
	tids     tid[];
	seqs     bigint[];
	keys     text[];
	sizes    bigint[];
	bound    record; -- of each key the oldest unsent message that is no candidate
	wait     record; -- those of them that wait by themselves
	fits     record; -- candidates that are chosen
	chosen   tid[];
	c_seqs   bigint[]; -- of what is chosen
	c_keys   text[];
	c_size   bigint;
	mine     record; -- what is locked of it
BEGIN
	PERFORM set_config('synchronous_commit', 'off', true);
	WHILE total < p_max AND lanes < p_lanes LOOP
		IF skipped THEN
			SELECT o.topic, o.tenant, o.due INTO lane FROM {schema}.outbox o
			WHERE o.state = 1 AND o.topic > v_topic ORDER BY o.topic, o.tenant, o.due LIMIT 1;
		ELSE
			SELECT o.topic, o.tenant, o.due INTO lane FROM {schema}.outbox o
			WHERE o.state = 1 AND (o.topic, o.tenant) > (v_topic, v_tenant) ORDER BY o.topic, o.tenant, o.due LIMIT 1;
		END IF;
		IF NOT FOUND AND NOT wrapped THEN
			wrapped := true;
			skipped := false;
			v_topic := '';
			v_tenant := '';
			CONTINUE;
		ELSIF NOT FOUND OR (lane.topic, lane.tenant) > (begin_topic, begin_tenant) AND wrapped THEN -- all lanes were seen
			EXIT;
		END IF;
		v_topic := lane.topic;
		v_tenant := lane.tenant;
		skipped := v_topic = ANY (p_skip);
		CONTINUE WHEN skipped OR lane.due > t;
		room := p_limit;
		IF cardinality(p_topics) > 0 THEN
			SELECT coalesce(min(l.most), room) INTO room FROM unnest(p_topics, p_tenants, p_limits) l(topic, tenant, most)
			WHERE l.topic = v_topic AND l.tenant = v_tenant;
		END IF;
		room := least(room, p_max - total);
		CONTINUE WHEN room <= 0;
		IF NOT pg_try_advisory_xact_lock('{schema}.outbox'::regclass::oid::integer, hashtext(v_topic || ' ' || v_tenant)) THEN
			busy := true;
			CONTINUE;
		END IF;
		chosen := '{}';
		c_seqs := '{}';
		c_keys := '{}';
		c_size := 0;
		timed_due := 0;
		timed_seq := 9223372036854775807; -- behind all without a time
		fresh_seq := 0;
		FOR try IN 1..10 LOOP -- until enough is found that is not blocked
			look := CASE try WHEN 1 THEN room ELSE greatest(room, 500) END;
			SELECT array_agg(c.ctid) AS tids, array_agg(c.seq) AS seqs, array_agg(c.key) AS keys, array_agg(c.size) AS sizes,
				max(c.due) AS last, count(*) AS n INTO timed
			FROM (
				SELECT o.ctid, o.seq, o.key, o.due, octet_length(o.payload)::bigint AS size FROM {schema}.outbox o
				WHERE o.state = 1 AND o.topic = v_topic AND o.tenant = v_tenant AND (o.due, o.seq) > (timed_due, timed_seq) AND o.due <= t
					AND o.lease_end <= t
				ORDER BY o.due, o.seq LIMIT (look + 1) / 2
			) c;
			SELECT array_agg(c.ctid) AS tids, array_agg(c.seq) AS seqs, array_agg(c.key) AS keys, array_agg(c.size) AS sizes,
				max(c.seq) AS last, count(*) AS n INTO fresh
			FROM (
				SELECT o.ctid, o.seq, o.key, octet_length(o.payload)::bigint AS size FROM {schema}.outbox o
				WHERE o.state = 1 AND o.topic = v_topic AND o.tenant = v_tenant AND o.due = 0 AND o.seq > fresh_seq AND o.lease_end <= t
				ORDER BY o.due, o.seq LIMIT look - timed.n
			) c;
			EXIT WHEN timed.n + fresh.n = 0;
			tids := coalesce(timed.tids, '{}') || coalesce(fresh.tids, '{}');
			seqs := coalesce(timed.seqs, '{}') || coalesce(fresh.seqs, '{}');
			keys := coalesce(timed.keys, '{}') || coalesce(fresh.keys, '{}');
			sizes := coalesce(timed.sizes, '{}') || coalesce(fresh.sizes, '{}');
			SELECT coalesce(array_agg(b.key), '{}') AS keys, coalesce(array_agg(b.seq), '{}') AS seqs,
				array_agg(b.id) FILTER (WHERE b.holds OR b.due > t + 1000000) AS waiting INTO bound
			FROM (
				SELECT DISTINCT ON (k.key) k.key, b.*
				FROM (SELECT k.key, max(k.seq) AS seq, count(*) AS n FROM unnest(keys, seqs) k(key, seq) WHERE k.key <> '' GROUP BY k.key) k
				CROSS JOIN LATERAL ( -- so many, before its youngest candidate, that one is no candidate if there is such a one
					SELECT o.seq, o.id, o.due, o.holds FROM {schema}.outbox o
					WHERE o.topic = v_topic AND o.tenant = v_tenant AND o.key = k.key AND o.key <> '' AND (o.state = 1 OR o.holds) AND o.seq < k.seq
					ORDER BY o.seq LIMIT k.n
				) b
				LEFT JOIN unnest(seqs) c(seq) ON c.seq = b.seq
				WHERE c.seq IS NULL
				ORDER BY k.key, b.seq
			) b;
			SELECT array_agg(e.tid) AS tids, array_agg(e.seq) AS seqs, array_agg(e.key) AS keys, max(e.size) AS size INTO fits
			FROM (
				SELECT c.tid, c.seq, c.key, cardinality(chosen) + row_number() OVER w AS place, c_size + sum(c.size) OVER w AS size
				FROM unnest(tids, seqs, keys, sizes) c(tid, seq, key, size) LEFT JOIN unnest(bound.keys, bound.seqs) b(key, seq) ON b.key = c.key
				WHERE b.seq IS NULL OR c.seq < b.seq
				WINDOW w AS (ORDER BY c.seq)
			) e
			WHERE e.place <= room AND (e.place = 1 OR e.size <= p_bytes);
			IF fits.tids IS NOT NULL THEN
				chosen := chosen || fits.tids;
				c_seqs := c_seqs || fits.seqs;
				c_keys := c_keys || fits.keys;
				c_size := fits.size;
			END IF;
			moved := 0;
			IF bound.waiting IS NOT NULL THEN
				-- What is behind a message that waits for long is moved to that one's time, or nobody would find what comes
				-- behind it. The locks keep an operator from ending the wait meanwhile, and relays from waiting for each other.
				SELECT array_agg(b.key) AS keys, array_agg(b.seq) AS seqs, array_agg(b.due) AS dues INTO wait
				FROM (
					SELECT o.key, o.seq, CASE WHEN o.holds THEN 9223372036854775807 ELSE o.due END AS due FROM {schema}.outbox o
					WHERE o.id = ANY (bound.waiting) AND (o.holds OR o.state = 1 AND o.due > t + 1000000)
					FOR SHARE SKIP LOCKED
				) b;
				IF wait.keys IS NOT NULL THEN
					SELECT array_agg(m.ctid) AS tids INTO mine
					FROM (
						SELECT o.ctid FROM {schema}.outbox o
						WHERE o.ctid = ANY (tids) AND o.key = ANY (wait.keys) AND o.state + 0 = 1 AND o.due <= t AND o.lease_end <= t FOR UPDATE SKIP LOCKED
					) m;
					UPDATE {schema}.outbox o SET due = greatest(b.due, o.not_before)
					FROM unnest(wait.keys, wait.seqs, wait.dues) b(key, seq, due)
					WHERE o.ctid = ANY (mine.tids) AND b.key = o.key AND o.seq > b.seq;
					GET DIAGNOSTICS moved = ROW_COUNT;
				END IF;
			END IF;
			EXIT WHEN cardinality(chosen) >= room / 2.0 OR c_size >= p_bytes / 2.0 OR timed.n + fresh.n < look / 2 OR try > 1 AND moved = 0;
			IF timed.n > 0 THEN
				timed_due := timed.last;
				timed_seq := 9223372036854775807;
			END IF;
			fresh_seq := coalesce(fresh.last, fresh_seq);
		END LOOP;
		CONTINUE WHEN cardinality(chosen) = 0;
		SELECT array_agg(m.ctid) AS tids, array_agg(m.seq) AS seqs INTO mine
		FROM (
			SELECT o.ctid, o.seq FROM {schema}.outbox o
			WHERE o.ctid = ANY (chosen) AND o.state + 0 = 1 AND o.due <= t AND o.lease_end <= t FOR UPDATE SKIP LOCKED
		) m;
		CONTINUE WHEN mine.tids IS NULL;
		IF cardinality(mine.tids) < cardinality(chosen) THEN -- others were faster
			SELECT array_agg(m.tid) AS tids INTO mine
			FROM unnest(mine.tids, mine.seqs) m(tid, seq) JOIN unnest(c_seqs, c_keys) c(seq, key) ON c.seq = m.seq
			LEFT JOIN (
				SELECT c.key, min(c.seq) AS seq FROM unnest(c_seqs, c_keys) c(seq, key) WHERE c.key <> '' AND c.seq <> ALL (mine.seqs) GROUP BY c.key
			) lost ON lost.key = c.key
			WHERE lost.seq IS NULL OR m.seq < lost.seq;
			CONTINUE WHEN mine.tids IS NULL;
		END IF;
		RETURN QUERY WITH leased AS (
			UPDATE {schema}.outbox o SET lease_end = v_end, token = p_token WHERE o.ctid = ANY (mine.tids) RETURNING o.*
		) SELECT * FROM leased l ORDER BY l.seq;
		total := total + cardinality(mine.tids);
		lanes := lanes + 1;
	END LOOP;
	IF busy AND total = 0 THEN
		RETURN NEXT NULL;
	END IF;
END $$;

-- What became of leased messages: those that are sent, and the others with 2 failed, 3 given up, 4 put back, 5 given up and
-- holding its key.
CREATE FUNCTION {schema}.outbox_settle_1(p_token bytea, p_keep bigint, p_sent text[], p_ids text[], p_outcomes bigint[], p_delays bigint[], p_errors text[])
RETURNS void LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	t bigint := {schema}.clock_1();
BEGIN
	IF p_keep = 0 THEN
		DELETE FROM {schema}.outbox o WHERE o.id = ANY (p_sent) AND o.state = 1 AND o.token = p_token;
	ELSE
		UPDATE {schema}.outbox o SET state = 3, token = NULL, lease_end = 0, due = {schema}.after_1(t, p_keep), ended = t, error = ''
		WHERE o.id = ANY (p_sent) AND o.state = 1 AND o.token = p_token;
	END IF;
	IF cardinality(p_ids) > 0 THEN
		UPDATE {schema}.outbox o SET
			state = CASE WHEN r.outcome IN (3, 5) THEN 2 ELSE 1 END,
			token = NULL,
			lease_end = 0,
			attempts = o.attempts + CASE WHEN r.outcome = 4 THEN 0 ELSE 1 END,
			not_before = CASE WHEN r.outcome = 2 THEN {schema}.after_1(t, r.delay) ELSE o.not_before END,
			due = CASE WHEN r.outcome = 2 THEN {schema}.after_1(t, r.delay) ELSE o.not_before END,
			ended = CASE WHEN r.outcome IN (3, 5) THEN t ELSE 0 END,
			error = CASE WHEN r.outcome = 4 THEN o.error ELSE r.error END,
			holds = r.outcome = 5 AND o.key <> ''
		FROM unnest(p_ids, p_outcomes, p_delays, p_errors) r(id, outcome, delay, error)
		WHERE o.id = ANY (p_ids) AND o.id = r.id AND o.state = 1 AND o.token = p_token;
	END IF;
END $$;

-- Lets those behind a message go that an operator has requeued or dropped. They may have been moved to its time.
CREATE FUNCTION {schema}.outbox_freed_1(p_topics text[], p_tenants text[], p_keys text[]) RETURNS void LANGUAGE sql VOLATILE AS $$
	UPDATE {schema}.outbox o SET due = o.not_before
	FROM (SELECT DISTINCT u.topic, u.tenant, u.key FROM unnest(p_topics, p_tenants, p_keys) u(topic, tenant, key) WHERE u.key <> '') f
	WHERE o.topic = f.topic AND o.tenant = f.tenant AND o.key = f.key AND o.key <> '' AND o.state = 1 AND o.due <> o.not_before
$$;

CREATE FUNCTION {schema}.outbox_requeue_1(p_ids text[]) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	t    bigint := {schema}.clock_1();
	done record;
BEGIN
	WITH requeued AS (
		UPDATE {schema}.outbox o SET
			attempts = CASE o.state WHEN 2 THEN 0 ELSE o.attempts END, state = 1, token = NULL, lease_end = 0, not_before = 0, due = 0, ended = 0,
			holds = false
		WHERE o.id = ANY (p_ids) AND (o.state = 2 OR o.state = 1 AND o.lease_end <= t)
		RETURNING o.topic, o.tenant, o.key
	)
	SELECT array_agg(r.topic) AS topics, array_agg(r.tenant) AS tenants, array_agg(r.key) AS keys, count(*)::integer AS n INTO done FROM requeued r;
	PERFORM {schema}.outbox_freed_1(done.topics, done.tenants, done.keys);
	RETURN done.n;
END $$;

CREATE FUNCTION {schema}.outbox_drop_1(p_ids text[]) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	t    bigint := {schema}.clock_1();
	done record;
BEGIN
	WITH dropped AS (
		DELETE FROM {schema}.outbox o WHERE o.id = ANY (p_ids) AND (o.state <> 1 OR o.lease_end <= t)
		RETURNING o.topic, o.tenant, o.key
	)
	SELECT array_agg(d.topic) AS topics, array_agg(d.tenant) AS tenants, array_agg(d.key) AS keys, count(*)::integer AS n INTO done FROM dropped d;
	PERFORM {schema}.outbox_freed_1(done.topics, done.tenants, done.keys);
	RETURN done.n;
END $$;

-- Deletes sent messages that were kept long enough.
CREATE FUNCTION {schema}.outbox_clean_1(p_limit integer) RETURNS integer LANGUAGE plpgsql VOLATILE SET plan_cache_mode = force_custom_plan AS $$
DECLARE
	deleted integer;
BEGIN
	DELETE FROM {schema}.outbox o WHERE o.ctid = ANY (ARRAY(
		SELECT s.ctid FROM {schema}.outbox s WHERE s.state = 3 AND s.due <= {schema}.clock_1() ORDER BY s.due LIMIT p_limit FOR UPDATE SKIP LOCKED
	));
	GET DIAGNOSTICS deleted = ROW_COUNT;
	RETURN deleted;
END $$;

-- Groups

-- The verbs of many callers at once, in one transaction. Of each array the nth element is the nth caller's; the ids are sorted,
-- so that groups which wait for each other do so in one order. A group does what is common, and says whose verbs it has done. The
-- others are left to the functions of one verb, in transactions of their own. No group waits for a row that somebody changes or has
-- locked: that row's xmax is set. A claim waits for another's insertion of its id, and what is raced for a row, for as long as
-- lock_timeout says. The planner is made to go by ids, since it knows neither how many there are nor how large the table will
-- be: "state + 0" is not the state of which records_live knows something.

CREATE FUNCTION {schema}.loads_1(p_ids bytea[]) RETURNS TABLE (n bigint, v {schema}.found_1) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
	t bigint := {schema}.clock_1(); -- before the records are read, as in load_1
BEGIN
	RETURN QUERY SELECT u.n, CASE
			WHEN r.answer_day IS NULL THEN ROW(false, false, greatest(t, r.started, r.settled), {columns})::{schema}.found_1
			ELSE {schema}.load_1(u.id)
		END
	FROM unnest(p_ids) WITH ORDINALITY u(id, n) LEFT JOIN {schema}.records r ON r.id = u.id;
END $$;

-- Makes the records of those ids that have none, and returns the others as they are. The first row is number 0, with the clock and
-- the fence of the new records, and ids and tokens of those, one after the other.
CREATE FUNCTION {schema}.claims_1(
	p_ids bytea[], p_tokens bytea[], p_fingerprints bytea[], p_on_lost smallint[], p_leases bigint[], p_retentions bigint[],
	p_tombstones bigint[], p_operations bytea[], p_correlations bytea[], p_sealed bytea[]
) RETURNS TABLE (n bigint, made bytea, v {schema}.found_1) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '100ms' AS $$
DECLARE
	t     bigint := {schema}.clock_1();
	mark  bigint;
	known bigint[];
BEGIN
	SELECT array_agg(u.n) INTO known FROM unnest(p_ids) WITH ORDINALITY u(id, n) JOIN {schema}.records r ON r.id = u.id;
	n := 0;
	v.clock := t;
	v.fence := t / 1000;
	IF cardinality(known) = cardinality(p_ids) THEN
		RETURN NEXT;
	ELSE
		IF current_setting('synchronous_commit') = 'off' THEN
			PERFORM set_config('synchronous_commit', 'on', true);
		END IF;
		WITH new AS (
			INSERT INTO {schema}.records AS r (
				fence, created, started, lease_end, settled, retention, tombstone, attempt, layout, state, wrote, on_lost,
				begun, maybe, seized, steps, owed, id, token, fingerprint, operation, correlation, error, sealed
			) SELECT
				t / 1000, t, t, {schema}.after_1(t, u.lease), 0, u.retention, u.tombstone, 1, 1, 1, 0, u.on_lost,
				false, false, false, false, false, u.id, u.token, u.fingerprint, u.operation, u.correlation, '', u.sealed
			FROM unnest(p_ids, p_tokens, p_fingerprints, p_on_lost, p_leases, p_retentions, p_tombstones, p_operations, p_correlations, p_sealed)
				WITH ORDINALITY u(id, token, fingerprint, on_lost, lease, retention, tombstone, operation, correlation, sealed, n)
			WHERE known IS NULL OR u.n <> ALL (known)
			ON CONFLICT (id) DO NOTHING RETURNING r.id, r.token
		) SELECT string_agg(new.id || new.token, '') INTO made FROM new;
		-- Asked after the insertion, which has waited for deletions under way.
		mark := pg_sequence_last_value('{schema}.fences');
		IF mark >= v.fence OR {schema}.clock_1() > t + 5000000 THEN
			v.fence := greatest(mark + 1, {schema}.clock_1() / 1000);
			UPDATE {schema}.records r SET fence = v.fence
			FROM generate_series(0, octet_length(made) / 64 - 1) i WHERE r.id = substr(made, 64 * i + 1, 48);
		END IF;
		RETURN NEXT;
	END IF;
	IF known IS NOT NULL THEN
		RETURN QUERY SELECT known[l.n], NULL::bytea, l.v FROM {schema}.loads_1(ARRAY(SELECT p_ids[k.n] FROM unnest(known) k(n))) l;
	END IF;
END $$;

-- Returns the numbers of those whose leases were extended.
CREATE FUNCTION {schema}.extends_1(p_ids bytea[], p_fences bigint[], p_tokens bytea[], p_leases bigint[], p_begun boolean[]) RETURNS SETOF bigint
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '100ms' AS $$
DECLARE
	t bigint := {schema}.clock_1();
BEGIN
	IF current_setting('synchronous_commit') = 'off' THEN
		PERFORM set_config('synchronous_commit', 'on', true);
	END IF;
	RETURN QUERY UPDATE {schema}.records r SET lease_end = {schema}.after_1(t, u.lease), begun = r.begun OR u.begun
	FROM unnest(p_ids, p_fences, p_tokens, p_leases, p_begun) WITH ORDINALITY u(id, fence, token, lease, begun, n)
	WHERE r.id = u.id AND r.state + 0 = 1 AND r.fence = u.fence AND r.token = u.token AND r.layout <= 1 AND r.xmax = '0'
	RETURNING u.n;
END $$;

-- Settles as done those runs of which nothing has begun to leave, by the rules of settle_1, and returns their records without the
-- answers.
CREATE FUNCTION {schema}.settles_1(
	p_ids bytea[], p_fences bigint[], p_tokens bytea[], p_retentions bigint[], p_errors bytea[], p_answers bytea[], p_apart boolean, p_notify boolean
) RETURNS TABLE (n bigint, v {schema}.found_1) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '100ms' AS $$
DECLARE
	t bigint := {schema}.clock_1();
BEGIN
	IF current_setting('synchronous_commit') = 'off' THEN
		PERFORM set_config('synchronous_commit', 'on', true);
	END IF;
	RETURN QUERY WITH settled AS (
		UPDATE {schema}.records r SET
			state = 2, wrote = 2, settled = greatest(t, r.started, r.settled), error = u.error, seized = false, owed = false, maybe = false,
			retention = CASE WHEN u.retention > 0 THEN u.retention ELSE r.retention END,
			expires = nullif({schema}.expires_1(greatest(t, r.started, r.settled), CASE WHEN u.retention > 0 THEN u.retention ELSE r.retention END,
				r.tombstone, u.answer IS NOT NULL OR r.steps), 9223372036854775807),
			answer = CASE WHEN NOT p_apart THEN u.answer END,
			answer_day = CASE WHEN p_apart AND u.answer IS NOT NULL THEN least({schema}.after_1(greatest(t, r.started, r.settled),
				CASE WHEN u.retention > 0 THEN u.retention ELSE r.retention END) / 86400000000, 2147483646) END,
			sealed = NULL
		FROM unnest(p_ids, p_fences, p_tokens, p_retentions, p_errors, p_answers) WITH ORDINALITY u(id, fence, token, retention, error, answer, n)
		WHERE r.id = u.id AND r.state + 0 = 1 AND r.fence = u.fence AND r.token = u.token AND NOT r.begun AND r.layout <= 1 AND r.xmax = '0'
		RETURNING u.n, r.id, r.answer_day, CASE WHEN p_apart THEN u.answer END AS answer, ROW(true, true, r.settled, {written})::{schema}.found_1 AS v
	), kept AS (
		INSERT INTO {schema}.answers (day, id, answer) SELECT s.answer_day, s.id, s.answer FROM settled s WHERE s.answer_day IS NOT NULL
		ON CONFLICT (id, day) DO UPDATE SET answer = excluded.answer
	)
	SELECT s.n, s.v FROM settled s WHERE NOT p_notify OR pg_notify({channel}, encode(s.id, 'base64')) IS NOT NULL;
END $$;

-- +goose StatementEnd
