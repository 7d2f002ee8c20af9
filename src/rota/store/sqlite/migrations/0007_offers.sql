-- What workers offer, and what they cannot do at present, in their own words.
ALTER TABLE session ADD COLUMN offers TEXT NOT NULL DEFAULT '[]'; -- JSON, by their latest hello
ALTER TABLE session ADD COLUMN trouble TEXT NOT NULL DEFAULT ''; -- by their latest beat
