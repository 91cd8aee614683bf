BEGIN TRANSACTION;
CREATE TABLE deliveries (
	id INTEGER NOT NULL, 
	"key" VARCHAR(300) NOT NULL, 
	channel VARCHAR(100) NOT NULL, 
	message JSON NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	attempts INTEGER NOT NULL, 
	next FLOAT NOT NULL, 
	error TEXT, 
	created FLOAT NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE ("key", channel)
);
INSERT INTO "deliveries" VALUES(1,'ended nightly','team','{"title": "t"}','sent',0,1795000000.0,NULL,1795000000.0);
CREATE TABLE firings (
	schedule VARCHAR(100) NOT NULL, 
	due FLOAT NOT NULL, 
	outcome VARCHAR(16) NOT NULL, 
	decided FLOAT NOT NULL, 
	service VARCHAR(32), 
	job INTEGER, 
	reason TEXT, 
	PRIMARY KEY (schedule, due), 
	FOREIGN KEY(job) REFERENCES jobs (id)
);
INSERT INTO "firings" VALUES('nightly',1795000790.0,'queued',1795000800.0,'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',5,NULL);
INSERT INTO "firings" VALUES('nightly',1794914390.0,'missed',1795000800.0,'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',NULL,'no service was up');
CREATE TABLE jobs (
	id INTEGER NOT NULL, 
	verb VARCHAR(16) NOT NULL, 
	sweep VARCHAR(200) NOT NULL, 
	makes VARCHAR(200), 
	request JSON NOT NULL, 
	user VARCHAR(100) NOT NULL, 
	project VARCHAR(100) NOT NULL, 
	priority INTEGER NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	submitted FLOAT NOT NULL, 
	started FLOAT, 
	ended FLOAT, 
	end_by FLOAT, 
	schedule VARCHAR(100), 
	due FLOAT, 
	service VARCHAR(32), 
	host VARCHAR(255), 
	pid INTEGER, 
	attempts INTEGER NOT NULL, 
	stop_asked FLOAT, 
	error TEXT, 
	told FLOAT, 
	PRIMARY KEY (id), 
	UNIQUE (makes)
);
INSERT INTO "jobs" VALUES(1,'run','digits','digits','{"verb": "run", "conf": "digits", "overrides": ["search.num_trials=4"], "name": "digits"}','ada','chat',0,'queued',1795000000.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(2,'run','digits-2','digits-2','{"verb": "run", "conf": "digits", "overrides": ["search.num_trials=4"], "name": "digits-2"}','bob','vision',1,'queued',1795000001.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(3,'run','digits-3','digits-3','{"verb": "run", "conf": "digits", "overrides": ["search.num_trials=4"], "name": "digits-3"}','ada','chat',2,'finished',1795000002.0,1795000010.0,1795000600.0,NULL,NULL,NULL,'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','here',4321,1,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(4,'resume','digits-3',NULL,'{"verb": "resume", "sweep": "digits-3"}','ada','chat',0,'queued',1795000700.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(5,'run','nightly-20261119','nightly-20261119','{"verb": "run", "conf": "llm_lora", "overrides": [], "name": "nightly-20261119"}','schedule','nights',0,'queued',1795000800.0,NULL,NULL,1795015000.0,'nightly',1795000790.0,NULL,NULL,NULL,0,NULL,NULL,NULL);
CREATE TABLE nights (
	schedule VARCHAR(100) NOT NULL, 
	due FLOAT NOT NULL, 
	sweep VARCHAR(200) NOT NULL, 
	settings JSON NOT NULL, 
	metric VARCHAR(200) NOT NULL, 
	mode VARCHAR(3) NOT NULL, 
	tried VARCHAR(32), 
	point JSON, 
	verdict VARCHAR(16) NOT NULL, 
	reason TEXT, 
	best FLOAT, 
	champion FLOAT, 
	challenger VARCHAR(32), 
	repeats VARCHAR(200), 
	champions JSON, 
	challengers JSON, 
	noise FLOAT, 
	version VARCHAR(32), 
	wall_s FLOAT, 
	cost FLOAT, 
	decided FLOAT, 
	reported FLOAT, 
	holder VARCHAR(32), 
	PRIMARY KEY (schedule, due)
);
INSERT INTO "nights" VALUES('nightly',1795000790.0,'nightly-20261119','{"warm_start": 3}','eval/loss','min',NULL,NULL,'running',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE schedules (
	name VARCHAR(100) NOT NULL, 
	decided FLOAT NOT NULL, 
	cron VARCHAR(200) NOT NULL, 
	timezone VARCHAR(100) NOT NULL, 
	enabled BOOLEAN NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "schedules" VALUES('nightly',1795000800.0,'0 2 * * *','UTC',1);
CREATE TABLE services (
	id VARCHAR(32) NOT NULL, 
	host VARCHAR(255) NOT NULL, 
	pid INTEGER NOT NULL, 
	started FLOAT NOT NULL, 
	beat FLOAT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "services" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','here',1234,1795000000.0,1795000060.0);
CREATE TABLE sessions (
	digest VARCHAR(64) NOT NULL, 
	token INTEGER NOT NULL, 
	expires FLOAT NOT NULL, 
	PRIMARY KEY (digest), 
	FOREIGN KEY(token) REFERENCES tokens (id)
);
CREATE TABLE tokens (
	id INTEGER NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	label VARCHAR(200) NOT NULL, 
	user VARCHAR(100) NOT NULL, 
	role VARCHAR(16) NOT NULL, 
	projects JSON NOT NULL, 
	created FLOAT NOT NULL, 
	expires FLOAT, 
	revoked FLOAT, 
	used FLOAT, 
	PRIMARY KEY (id), 
	UNIQUE (digest)
);
INSERT INTO "tokens" VALUES(1,'d8cae1cae7e541283c6e37864bf24c5cabeb44625927d56b90afd4b728d58043','','ada','admin','["chat"]',1795000000.0,NULL,NULL,NULL);
CREATE INDEX ix_jobs_sweep ON jobs (sweep);
CREATE INDEX jobs_waiting ON jobs (state, priority, id);
CREATE INDEX ix_jobs_told ON jobs (told);
CREATE INDEX ix_jobs_user ON jobs (user);
CREATE INDEX ix_jobs_state ON jobs (state);
CREATE INDEX ix_jobs_project ON jobs (project);
CREATE INDEX ix_nights_sweep ON nights (sweep);
CREATE INDEX ix_nights_repeats ON nights (repeats);
CREATE INDEX ix_deliveries_state ON deliveries (state);
COMMIT;
