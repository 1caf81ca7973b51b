package sqltext

import "testing"

func TestStatementsThatEndATransactionAreTold(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{
		"commit", "COMMIT;", " ; commit", "BEGIN", "begin isolation level serializable", "start transaction", "abort", "END WORK",
		"rollback", "ROLLBACK WORK", "rollback and chain", "rollback prepared 'x'", "prepare transaction 'x'",
		"select 1; commit", "select ';'; commit", `select "a;b"; commit`, "select $$;$$; commit", "select $a$ ; $$ ; $a$; commit",
		"select E'\\';'; commit", "select '\\'; commit", "-- ;\ncommit", "/* ; /* ; */ ; */ commit", "select 1 -- ;\n; end",
		"insert into a$b values (1); commit", "select 'it''s; fine'; commit",
	} {
		if !EndsTransaction(sql) {
			t.Errorf("%q was not told", sql)
		}
	}
	for _, sql := range []string{
		"", ";", "select 1", "select 'commit'", "select ';commit;'", "savepoint a; rollback to a", "rollback work to savepoint a",
		"rollback transaction to a; release a", "prepare p as select 1", "insert into t values ($1); select $2", "-- commit",
		"/* commit; */ select 1", "do $$ begin perform 1; end $$", "create function f() returns int begin atomic select 1; select 2; end",
		"select e'\\'; commit'", "select $x$; commit; $x$", "with begins as (select 1) select 1", "commitment", "endless",
		"select 1; /* commit", "select 'open; commit", "$$", "$", "select $1; select '",
	} {
		if EndsTransaction(sql) {
			t.Errorf("%q was refused", sql)
		}
	}
}

func FuzzStatementsThatEndATransaction(f *testing.F) {
	f.Add("select $a$;$a$; -- x\n/* */ commit")
	f.Fuzz(func(t *testing.T, sql string) {
		if i := statementEnd(sql); i < 0 || i > len(sql) || i < len(sql) && sql[i] != ';' {
			t.Errorf("%q ends at %d", sql, i)
		}
		EndsTransaction(sql)
	})
}
