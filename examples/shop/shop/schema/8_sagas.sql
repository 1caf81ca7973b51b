-- Who takes parcels to a country, and how many more.
CREATE TABLE IF NOT EXISTS carriers (
	country TEXT   NOT NULL PRIMARY KEY,
	room    BIGINT NOT NULL CHECK (room >= 0)
);
INSERT INTO carriers (country, room) VALUES ('AT', 1000), ('CH', 1000), ('DE', 1000), ('FR', 1000), ('NL', 1000)
	ON CONFLICT (country) DO NOTHING;

CREATE TABLE IF NOT EXISTS shipments (
	tenant   TEXT NOT NULL,
	order_id TEXT NOT NULL,
	tracking TEXT NOT NULL UNIQUE,
	PRIMARY KEY (tenant, order_id)
);
