CREATE INDEX ix_api_token_account_id ON api_token (account_id);
CREATE INDEX ix_application_round_id ON application (round_id);
CREATE INDEX ix_assignment_round_id_person ON assignment (round_id, person);
CREATE INDEX ix_comment_campaign_id_id ON comment (campaign_id, id);
CREATE INDEX ix_comment_item_id_id ON comment (item_id, id);
CREATE INDEX ix_decision_campaign_id_id ON decision (campaign_id, id);
CREATE INDEX ix_decision_item_id_id ON decision (item_id, id);
CREATE INDEX ix_gold_answer_campaign_id_id ON gold_answer (campaign_id, id);
CREATE INDEX ix_guideline_campaign_id_id ON guideline (campaign_id, id);
CREATE INDEX ix_item_given ON item (campaign_id, split, position, label) WHERE label IS NOT NULL;
CREATE INDEX ix_job_campaign_id_id ON job (campaign_id, id);
CREATE INDEX ix_job_state ON job (state);
CREATE INDEX ix_login_attempt_address_created_at ON login_attempt (address, created_at);
CREATE INDEX ix_login_attempt_name_created_at ON login_attempt (name, created_at);
CREATE INDEX ix_login_session_account_id ON login_session (account_id);
CREATE INDEX ix_selection_item_id_attempt ON selection (item_id, attempt);
CREATE INDEX ix_setting_change_campaign_id_id ON setting_change (campaign_id, id);
CREATE INDEX ix_vote_campaign_id_id ON vote (campaign_id, id);
CREATE INDEX ix_vote_campaign_id_person_id ON vote (campaign_id, person, id);
CREATE INDEX ix_wish_campaign_id_id ON wish (campaign_id, id);
CREATE TABLE account (
	id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	role TEXT NOT NULL, 
	password_hash TEXT, 
	active BOOLEAN NOT NULL, 
	created_at DOUBLE NOT NULL, 
	CONSTRAINT pk_account PRIMARY KEY (id), 
	CONSTRAINT uq_account_name UNIQUE (name)
);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
CREATE TABLE api_token (
	id INTEGER NOT NULL, 
	account_id INTEGER NOT NULL, 
	token_hash TEXT NOT NULL, 
	label TEXT NOT NULL, 
	once BOOLEAN NOT NULL, 
	created_at DOUBLE NOT NULL, 
	expires_at DOUBLE, 
	revoked_at DOUBLE, 
	CONSTRAINT pk_api_token PRIMARY KEY (id), 
	CONSTRAINT uq_api_token_token_hash UNIQUE (token_hash), 
	CONSTRAINT fk_api_token_account_id FOREIGN KEY(account_id) REFERENCES account (id)
);
CREATE TABLE application (
	decision_id INTEGER NOT NULL, 
	round_id INTEGER NOT NULL, 
	CONSTRAINT pk_application PRIMARY KEY (decision_id), 
	CONSTRAINT fk_application_decision_id FOREIGN KEY(decision_id) REFERENCES decision (id), 
	CONSTRAINT fk_application_round_id FOREIGN KEY(round_id) REFERENCES round (id)
);
CREATE TABLE array_file (
	id INTEGER NOT NULL, 
	campaign_id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	path TEXT NOT NULL, 
	dtype TEXT NOT NULL, 
	shape JSON NOT NULL, 
	sha256 TEXT NOT NULL, 
	CONSTRAINT pk_array_file PRIMARY KEY (id), 
	CONSTRAINT uq_array_file_campaign_id_name UNIQUE (campaign_id, name), 
	CONSTRAINT fk_array_file_campaign_id FOREIGN KEY(campaign_id) REFERENCES campaign (id)
);
CREATE TABLE assignment (
	id INTEGER NOT NULL, 
	round_id INTEGER NOT NULL, 
	selection_id INTEGER NOT NULL, 
	person TEXT NOT NULL, 
	state TEXT NOT NULL, 
	until DOUBLE NOT NULL, 
	CONSTRAINT pk_assignment PRIMARY KEY (id), 
	CONSTRAINT uq_assignment_selection_id_person UNIQUE (selection_id, person), 
	CONSTRAINT fk_assignment_round_id FOREIGN KEY(round_id) REFERENCES round (id), 
	CONSTRAINT fk_assignment_selection_id FOREIGN KEY(selection_id) REFERENCES selection (id)
);
CREATE TABLE campaign (
	id INTEGER NOT NULL, 
	public_id TEXT NOT NULL, 
	slug TEXT NOT NULL, 
	name TEXT NOT NULL, 
	state TEXT NOT NULL, 
	message TEXT NOT NULL, 
	settings JSON NOT NULL, 
	version INTEGER NOT NULL, 
	n_items INTEGER NOT NULL, 
	spent INTEGER NOT NULL, 
	created_at DOUBLE NOT NULL, 
	created_by TEXT NOT NULL, 
	archived_at DOUBLE, 
	deleted_at DOUBLE, 
	deleted_by TEXT, 
	purge_at DOUBLE, 
	purging BOOLEAN NOT NULL, 
	first_item INTEGER, 
	last_item INTEGER, 
	CONSTRAINT pk_campaign PRIMARY KEY (id), 
	CONSTRAINT uq_campaign_public_id UNIQUE (public_id), 
	CONSTRAINT uq_campaign_slug UNIQUE (slug)
);
CREATE TABLE class_name (
	id INTEGER NOT NULL, 
	campaign_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	CONSTRAINT pk_class_name PRIMARY KEY (id), 
	CONSTRAINT uq_class_name_campaign_id_position UNIQUE (campaign_id, position), 
	CONSTRAINT uq_class_name_campaign_id_name UNIQUE (campaign_id, name), 
	CONSTRAINT fk_class_name_campaign_id FOREIGN KEY(campaign_id) REFERENCES campaign (id)
);
CREATE TABLE comment (
	id INTEGER NOT NULL, 
	public_id TEXT NOT NULL, 
	campaign_id INTEGER NOT NULL, 
	item_id INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	comment_id INTEGER, 
	person TEXT NOT NULL, 
	text TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	CONSTRAINT pk_comment PRIMARY KEY (id), 
	CONSTRAINT uq_comment_public_id UNIQUE (public_id), 
	CONSTRAINT fk_comment_campaign_id FOREIGN KEY(campaign_id) REFERENCES campaign (id), 
	CONSTRAINT fk_comment_item_id FOREIGN KEY(item_id) REFERENCES item (id), 
	CONSTRAINT fk_comment_comment_id FOREIGN KEY(comment_id) REFERENCES comment (id)
);
CREATE TABLE decision (
	id INTEGER NOT NULL, 
	public_id TEXT NOT NULL, 
	campaign_id INTEGER NOT NULL, 
	item_id INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	round_id INTEGER, 
	kind TEXT NOT NULL, 
	"by" TEXT NOT NULL, 
	label INTEGER, 
	support DOUBLE NOT NULL, 
	supersedes INTEGER, 
	created_at DOUBLE NOT NULL, 
	CONSTRAINT pk_decision PRIMARY KEY (id), 
	CONSTRAINT uq_decision_public_id UNIQUE (public_id), 
	CONSTRAINT fk_decision_campaign_id FOREIGN KEY(campaign_id) REFERENCES campaign (id), 
	CONSTRAINT fk_decision_item_id FOREIGN KEY(item_id) REFERENCES item (id), 
	CONSTRAINT fk_decision_round_id FOREIGN KEY(round_id) REFERENCES round (id), 
	CONSTRAINT fk_decision_supersedes FOREIGN KEY(supersedes) REFERENCES decision (id)
);
CREATE TABLE duty (
	id INTEGER NOT NULL, 
	campaign_id INTEGER NOT NULL, 
	person TEXT NOT NULL, 
	rule JSON NOT NULL, 
	CONSTRAINT pk_duty PRIMARY KEY (id), 
	CONSTRAINT uq_duty_campaign_id_person UNIQUE (campaign_id, person), 
	CONSTRAINT fk_duty_campaign_id FOREIGN KEY(campaign_id) REFERENCES campaign (id)
);
CREATE TABLE gold (
	id INTEGER NOT NULL, 
	campaign_id INTEGER NOT NULL, 
	round_id INTEGER NOT NULL, 
	item_id INTEGER NOT NULL, 
	cover INTEGER NOT NULL, 
	person TEXT NOT NULL, 
	rank INTEGER NOT NULL, 
	state TEXT NOT NULL, 
	until DOUBLE NOT NULL, 
	created_at DOUBLE NOT NULL, 
	CONSTRAINT pk_gold PRIMARY KEY (id), 
	CONSTRAINT uq_gold_campaign_id_person_item_id UNIQUE (campaign_id, person, item_id), 
	CONSTRAINT uq_gold_round_id_person_rank UNIQUE (round_id, person, rank), 
	CONSTRAINT fk_gold_campaign_id FOREIGN KEY(campaign_id) REFERENCES campaign (id), 
	CONSTRAINT fk_gold_round_id FOREIGN KEY(round_id) REFERENCES round (id), 
	CONSTRAINT fk_gold_item_id FOREIGN KEY(item_id) REFERENCES item (id)
);
CREATE TABLE gold_answer (
	id INTEGER NOT NULL, 
	public_id TEXT NOT NULL, 
	campaign_id INTEGER NOT NULL, 
	gold_id INTEGER NOT NULL, 
	person TEXT NOT NULL, 
	account_id INTEGER, 
	seq INTEGER NOT NULL, 
	label INTEGER, 
	retracted BOOLEAN NOT NULL, 
	supersedes INTEGER, 
	note TEXT, 
	seconds DOUBLE, 
	request_id TEXT, 
	created_at DOUBLE NOT NULL, 
	CONSTRAINT pk_gold_answer PRIMARY KEY (id), 
	CONSTRAINT uq_gold_answer_public_id UNIQUE (public_id), 
	CONSTRAINT uq_gold_answer_gold_id_seq UNIQUE (gold_id, seq), 
	CONSTRAINT uq_gold_answer_campaign_id_person_request_id UNIQUE (campaign_id, person, request_id), 
	CONSTRAINT fk_gold_answer_campaign_id FOREIGN KEY(campaign_id) REFERENCES campaign (id), 
	CONSTRAINT fk_gold_answer_gold_id FOREIGN KEY(gold_id) REFERENCES gold (id), 
	CONSTRAINT fk_gold_answer_account_id FOREIGN KEY(account_id) REFERENCES account (id), 
	CONSTRAINT fk_gold_answer_supersedes FOREIGN KEY(supersedes) REFERENCES gold_answer (id)
);
CREATE TABLE guideline (
	id INTEGER NOT NULL, 
	campaign_id INTEGER NOT NULL, 
	version INTEGER NOT NULL, 
	class_position INTEGER, 
	text TEXT NOT NULL, 
	who TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	CONSTRAINT pk_guideline PRIMARY KEY (id), 
	CONSTRAINT fk_guideline_campaign_id FOREIGN KEY(campaign_id) REFERENCES campaign (id)
);
CREATE TABLE guideline_seen (
	id INTEGER NOT NULL, 
	campaign_id INTEGER NOT NULL, 
	person TEXT NOT NULL, 
	version INTEGER NOT NULL, 
	CONSTRAINT pk_guideline_seen PRIMARY KEY (id), 
	CONSTRAINT uq_guideline_seen_campaign_id_person UNIQUE (campaign_id, person), 
	CONSTRAINT fk_guideline_seen_campaign_id FOREIGN KEY(campaign_id) REFERENCES campaign (id)
);
CREATE TABLE item (
	id INTEGER NOT NULL, 
	campaign_id INTEGER NOT NULL, 
	split TEXT NOT NULL, 
	position INTEGER NOT NULL, 
	"key" TEXT NOT NULL, 
	text TEXT, 
	image TEXT, 
	fields JSON, 
	images JSON, 
	label INTEGER, 
	attempt INTEGER NOT NULL, 
	CONSTRAINT pk_item PRIMARY KEY (id), 
	CONSTRAINT uq_item_campaign_id_split_position UNIQUE (campaign_id, split, position), 
	CONSTRAINT uq_item_campaign_id_split_key UNIQUE (campaign_id, split, "key"), 
	CONSTRAINT fk_item_campaign_id FOREIGN KEY(campaign_id) REFERENCES campaign (id)
);
CREATE TABLE job (
	id INTEGER NOT NULL, 
	public_id TEXT NOT NULL, 
	campaign_id INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	options JSON NOT NULL, 
	person TEXT NOT NULL, 
	state TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	started_at DOUBLE, 
	ended_at DOUBLE, 
	file TEXT, 
	bytes INTEGER NOT NULL, 
	result JSON, 
	problem TEXT, 
	CONSTRAINT pk_job PRIMARY KEY (id), 
	CONSTRAINT uq_job_public_id UNIQUE (public_id), 
	CONSTRAINT fk_job_campaign_id FOREIGN KEY(campaign_id) REFERENCES campaign (id)
);
CREATE TABLE lead_action (
	id INTEGER NOT NULL, 
	campaign_id INTEGER NOT NULL, 
	person TEXT NOT NULL, 
	request_id TEXT NOT NULL, 
	asked JSON NOT NULL, 
	answer JSON NOT NULL, 
	created_at DOUBLE NOT NULL, 
	CONSTRAINT pk_lead_action PRIMARY KEY (id), 
	CONSTRAINT uq_lead_action_campaign_id_person_request_id UNIQUE (campaign_id, person, request_id), 
	CONSTRAINT fk_lead_action_campaign_id FOREIGN KEY(campaign_id) REFERENCES campaign (id)
);
CREATE TABLE lease (
	id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	holder TEXT NOT NULL, 
	life INTEGER NOT NULL, 
	fence INTEGER NOT NULL, 
	until DOUBLE NOT NULL, 
	asked BOOLEAN NOT NULL, 
	told JSON, 
	CONSTRAINT pk_lease PRIMARY KEY (id), 
	CONSTRAINT uq_lease_name UNIQUE (name)
);
CREATE TABLE login_attempt (
	id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	address TEXT NOT NULL, 
	ok BOOLEAN NOT NULL, 
	created_at DOUBLE NOT NULL, 
	CONSTRAINT pk_login_attempt PRIMARY KEY (id)
);
CREATE TABLE login_session (
	id INTEGER NOT NULL, 
	account_id INTEGER NOT NULL, 
	token_hash TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	expires_at DOUBLE NOT NULL, 
	CONSTRAINT pk_login_session PRIMARY KEY (id), 
	CONSTRAINT uq_login_session_token_hash UNIQUE (token_hash), 
	CONSTRAINT fk_login_session_account_id FOREIGN KEY(account_id) REFERENCES account (id)
);
CREATE TABLE membership (
	id INTEGER NOT NULL, 
	campaign_id INTEGER NOT NULL, 
	account_id INTEGER NOT NULL, 
	role TEXT NOT NULL, 
	CONSTRAINT pk_membership PRIMARY KEY (id), 
	CONSTRAINT uq_membership_account_id_campaign_id UNIQUE (account_id, campaign_id), 
	CONSTRAINT fk_membership_campaign_id FOREIGN KEY(campaign_id) REFERENCES campaign (id), 
	CONSTRAINT fk_membership_account_id FOREIGN KEY(account_id) REFERENCES account (id)
);
CREATE TABLE old_slug (
	id INTEGER NOT NULL, 
	campaign_id INTEGER NOT NULL, 
	slug TEXT NOT NULL, 
	CONSTRAINT pk_old_slug PRIMARY KEY (id), 
	CONSTRAINT uq_old_slug_slug UNIQUE (slug), 
	CONSTRAINT fk_old_slug_campaign_id FOREIGN KEY(campaign_id) REFERENCES campaign (id)
);
CREATE TABLE removed_campaign (
	id INTEGER NOT NULL, 
	public_id TEXT NOT NULL, 
	slug TEXT NOT NULL, 
	name TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	deleted_at DOUBLE NOT NULL, 
	deleted_by TEXT NOT NULL, 
	removed_at DOUBLE NOT NULL, 
	CONSTRAINT pk_removed_campaign PRIMARY KEY (id), 
	CONSTRAINT uq_removed_campaign_public_id UNIQUE (public_id)
);
CREATE TABLE round (
	id INTEGER NOT NULL, 
	campaign_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	state TEXT NOT NULL, 
	size INTEGER NOT NULL, 
	ahead INTEGER NOT NULL, 
	spent INTEGER NOT NULL, 
	selection_hash TEXT, 
	labels_hash TEXT, 
	model_hash TEXT, 
	outcome JSON, 
	diagnostics JSON NOT NULL, 
	rebuilt TEXT NOT NULL, 
	seconds JSON NOT NULL, 
	opened_at DOUBLE NOT NULL, 
	closed_at DOUBLE, 
	settings JSON, 
	link JSON, 
	CONSTRAINT pk_round PRIMARY KEY (id), 
	CONSTRAINT uq_round_campaign_id_number UNIQUE (campaign_id, number), 
	CONSTRAINT fk_round_campaign_id FOREIGN KEY(campaign_id) REFERENCES campaign (id)
);
CREATE TABLE selection (
	round_id INTEGER NOT NULL, 
	item_id INTEGER NOT NULL, 
	rank INTEGER NOT NULL, 
	origin TEXT NOT NULL, 
	attempt INTEGER NOT NULL, 
	suggested INTEGER, 
	influence DOUBLE, 
	by_answer JSON NOT NULL, 
	blind BOOLEAN NOT NULL, 
	weak JSON NOT NULL, 
	nearest JSON NOT NULL, 
	votes INTEGER NOT NULL, 
	decided BOOLEAN NOT NULL, 
	needed INTEGER, 
	id INTEGER NOT NULL, 
	CONSTRAINT pk_selection PRIMARY KEY (id), 
	CONSTRAINT uq_selection_round_id_item_id UNIQUE (round_id, item_id), 
	CONSTRAINT uq_selection_round_id_rank UNIQUE (round_id, rank), 
	CONSTRAINT fk_selection_round_id FOREIGN KEY(round_id) REFERENCES round (id), 
	CONSTRAINT fk_selection_item_id FOREIGN KEY(item_id) REFERENCES item (id)
);
CREATE TABLE setting_change (
	id INTEGER NOT NULL, 
	campaign_id INTEGER NOT NULL, 
	who TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	what JSON NOT NULL, 
	CONSTRAINT pk_setting_change PRIMARY KEY (id), 
	CONSTRAINT fk_setting_change_campaign_id FOREIGN KEY(campaign_id) REFERENCES campaign (id)
);
CREATE TABLE thread_seen (
	id INTEGER NOT NULL, 
	item_id INTEGER NOT NULL, 
	person TEXT NOT NULL, 
	upto INTEGER NOT NULL, 
	CONSTRAINT pk_thread_seen PRIMARY KEY (id), 
	CONSTRAINT uq_thread_seen_item_id_person UNIQUE (item_id, person), 
	CONSTRAINT fk_thread_seen_item_id FOREIGN KEY(item_id) REFERENCES item (id)
);
CREATE TABLE vote (
	id INTEGER NOT NULL, 
	public_id TEXT NOT NULL, 
	campaign_id INTEGER NOT NULL, 
	item_id INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	round_id INTEGER, 
	person TEXT NOT NULL, 
	account_id INTEGER, 
	seq INTEGER NOT NULL, 
	label INTEGER, 
	retracted BOOLEAN NOT NULL, 
	supersedes INTEGER, 
	note TEXT, 
	blind BOOLEAN NOT NULL, 
	suggested INTEGER, 
	seconds DOUBLE, 
	source TEXT NOT NULL, 
	request_id TEXT, 
	created_at DOUBLE NOT NULL, 
	imported_by TEXT, 
	CONSTRAINT pk_vote PRIMARY KEY (id), 
	CONSTRAINT uq_vote_public_id UNIQUE (public_id), 
	CONSTRAINT uq_vote_item_id_attempt_person_seq UNIQUE (item_id, attempt, person, seq), 
	CONSTRAINT uq_vote_campaign_id_person_request_id UNIQUE (campaign_id, person, request_id), 
	CONSTRAINT fk_vote_campaign_id FOREIGN KEY(campaign_id) REFERENCES campaign (id), 
	CONSTRAINT fk_vote_item_id FOREIGN KEY(item_id) REFERENCES item (id), 
	CONSTRAINT fk_vote_round_id FOREIGN KEY(round_id) REFERENCES round (id), 
	CONSTRAINT fk_vote_account_id FOREIGN KEY(account_id) REFERENCES account (id), 
	CONSTRAINT fk_vote_supersedes FOREIGN KEY(supersedes) REFERENCES vote (id)
);
CREATE TABLE wish (
	id INTEGER NOT NULL, 
	campaign_id INTEGER NOT NULL, 
	item_id INTEGER NOT NULL, 
	"by" TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	CONSTRAINT pk_wish PRIMARY KEY (id), 
	CONSTRAINT uq_wish_item_id UNIQUE (item_id), 
	CONSTRAINT fk_wish_campaign_id FOREIGN KEY(campaign_id) REFERENCES campaign (id), 
	CONSTRAINT fk_wish_item_id FOREIGN KEY(item_id) REFERENCES item (id)
);
CREATE TRIGGER application_no_delete BEFORE DELETE ON application WHEN NOT OLD.decision_id IN (SELECT id FROM decision WHERE campaign_id IN (SELECT id FROM campaign WHERE purging)) BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER application_no_update BEFORE UPDATE ON application BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER comment_no_delete BEFORE DELETE ON comment WHEN NOT OLD.campaign_id IN (SELECT id FROM campaign WHERE purging) BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER comment_no_update BEFORE UPDATE ON comment BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER decision_no_delete BEFORE DELETE ON decision WHEN NOT OLD.campaign_id IN (SELECT id FROM campaign WHERE purging) BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER decision_no_update BEFORE UPDATE ON decision BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER gold_answer_no_delete BEFORE DELETE ON gold_answer WHEN NOT OLD.campaign_id IN (SELECT id FROM campaign WHERE purging) BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER gold_answer_no_update BEFORE UPDATE ON gold_answer BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER guideline_no_delete BEFORE DELETE ON guideline WHEN NOT OLD.campaign_id IN (SELECT id FROM campaign WHERE purging) BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER guideline_no_update BEFORE UPDATE ON guideline BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER setting_change_no_delete BEFORE DELETE ON setting_change WHEN NOT OLD.campaign_id IN (SELECT id FROM campaign WHERE purging) BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER setting_change_no_update BEFORE UPDATE ON setting_change BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER vote_no_delete BEFORE DELETE ON vote WHEN NOT OLD.campaign_id IN (SELECT id FROM campaign WHERE purging) BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER vote_no_update BEFORE UPDATE ON vote BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE VIRTUAL TABLE item_text USING fts5(body, content='', tokenize='unicode61 remove_diacritics 2');
