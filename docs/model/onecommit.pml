/* One-commit mode: claim, effect and settle are one transaction, and there is no lease. Others see what has committed.
 * README.md says how to read this; run checks it.
 *
 * Guards 1 and 2 work in one-commit mode, guard 3 in leased mode on the same key, as a rollout may have it. A transaction
 * whose guard is gone is ended by the server, at some time, this way or that.
 */

/* ---- The clauses. -DWITHOUT=LOCK_FIRST leaves one out ---- */

#ifndef WITHOUT
#define WITHOUT 0
#endif
#define with(clause) (WITHOUT != clause)

#define LOCK_WAITED 1           /* who asks what became of a commit waits for the operation's lock */
#define LOCK_FIRST  2           /* the lock is taken before the record is read */
#define UNCHANGED   3           /* the settle writes only if the record is as the claim has found it */

/* ---- The record, and the transactions ---- */

#define REQUESTS 2              /* so often a client asks, at most */
#define NOBODY   0
#define LEASED   (2 * REQUESTS + 1)                     /* the token of guard 3 */
#define token_of(g, n) (((g) - 1) * REQUESTS + (n))     /* of guard g for request n; it stands for the transaction too */

#define absent 0
mtype = { running, done };
mtype state;
byte token;

byte lock;                      /* the transaction that has the operation's lock */
mtype = { open, committing };
mtype left[LEASED];             /* a transaction left to the server: without a COMMIT, or with one under way */

/* ---- What the invariants remember ---- */

byte effects;                   /* 2 for more */
byte acked;                     /* the answer that a client has got: the token of its run; 0 for none */
bool nothing[LEASED];           /* the client of this token was told that nothing happened */
byte busy = 3;

#define must(so, ...) if :: (so) -> skip :: else -> printf("BROKEN: "); printf(#__VA_ARGS__); printf("\n"); assert(false) fi

inline effect()
{
	effects = (effects < 2 -> effects + 1 : 2);
	must(effects < 2, two effects)
}

inline answers(a)
{
	printf("guard %d: its client gets answer %d\n", me, a);
	must(effects > 0, a success without its effect);
	must(acked == 0 || acked == a, two clients get different answers);
	acked = a
}

/* COMMIT of transaction t with its settle: both, or a rollback. Either gives the lock back. */
inline commits(t, yes)
{
	yes = (state == absent || !with(UNCHANGED));
	if
	:: yes -> state = done; token = t; must(!nothing[t], said that nothing happened, but it commits); effect()
	:: else -> skip
	fi;
	lock = (lock == t -> NOBODY : lock)
}

/* ---- A guard in one-commit mode ---- */

mtype = { asking, working, doubting, gone };

inline leaves() { n = 0; tok = NOBODY; found = 0; whose = NOBODY; yes = false; read = false; at = gone; busy-- }

inline asks_next()
{
	if
	:: n < REQUESTS -> n++; tok = token_of(me, n); found = 0; whose = NOBODY; yes = false; read = false; at = asking
	:: else -> leaves()
	fi
}

inline nothing_happened()
{
	printf("guard %d: tells its client that nothing happened\n", me);
	must(state != done || token != tok, said that nothing happened, but it commits);
	nothing[tok] = true;
	asks_next()
}

proctype Guard(byte me)
{
	byte n = 1, tok, whose;
	mtype at = asking, found;
	bool yes, read;

	tok = token_of(me, 1);
	do
	/* asking: it claims in a transaction, if nobody has the lock and the record allows it. */
	:: d_step {
		at == asking && lock == NOBODY && state == absent ->
		printf("guard %d: claims in transaction %d\n", me, tok); lock = tok; at = working }
	:: d_step { at == asking && state == done -> whose = token; answers(whose); leaves() }
	:: d_step { at == asking -> printf("guard %d: is asked no more\n", me); leaves() }

	/* working: the handler has its effect in the transaction. */
	:: d_step {
		at == working ->
		printf("guard %d: commits transaction %d\n", me, tok);
		commits(tok, yes);
		if :: yes -> answers(tok); leaves() :: else -> nothing_happened() fi }
	:: d_step {
		at == working ->
		printf("guard %d: commits transaction %d, no reply\n", me, tok); left[tok] = committing; at = doubting }
	:: d_step { at == working -> printf("guard %d: rolls transaction %d back\n", me, tok); lock = NOBODY; nothing_happened() }

	/* doubting: it asks what became of its commit, by the same claim once more. */
	:: d_step {
		at == doubting && !with(LOCK_FIRST) && !read ->
		printf("guard %d: reads the record\n", me); found = state; whose = token; read = true }
	:: d_step {
		at == doubting && (lock == NOBODY || !with(LOCK_WAITED)) && (read || with(LOCK_FIRST)) ->
		printf("guard %d: claims again, to learn what became of transaction %d\n", me, tok);
		if :: !read -> found = state; whose = token :: else -> skip fi;
		if
		:: found == done -> answers(whose); leaves()
		:: else -> nothing_happened()
		fi }

	:: d_step {
		at == working || at == doubting ->
		printf("guard %d: dies\n", me);
		left[tok] = (at == working -> open : left[tok]);
		leaves() }
	:: at == gone -> break
	od
}

/* ---- A guard in leased mode, under Hold. It does not know the lock ---- */

proctype Leased()
{
	byte me = 3;

	if
	:: d_step {
		state == absent -> printf("guard 3: claims with token %d\n", LEASED); state = running; token = LEASED }
		if
		:: d_step {
			printf("guard 3: its handler has the effect\n"); effect() }
			if
			:: d_step {
				printf("guard 3: settles as done\n");
				must(state == running && token == LEASED, an owner is fenced in vain);
				state = done; answers(LEASED) }
			:: printf("guard 3: dies\n")
			fi
		:: printf("guard 3: dies\n")
		fi
	:: printf("guard 3: is not asked\n")
	fi;
	busy--
}

/* ---- The server ends the transactions that are left to it ---- */

#define ends(t) \
	:: d_step { left[t] == committing -> printf("server: transaction %d commits\n", t); \
		left[t] = 0; commits(t, yes); yes = false } \
	:: d_step { left[t] != 0 -> printf("server: transaction %d is rolled back\n", t); \
		left[t] = 0; lock = (lock == t -> NOBODY : lock) }

active proctype Server()
{
	bool yes;
end:
	do
	ends(1)
	ends(2)
	ends(3)
	ends(4)
	od
}

/* ---- When all else has ended: no key is stuck, and what was acknowledged stands ---- */

active proctype Last()
{
end:
	d_step {
		busy == 0 && left[1] == 0 && left[2] == 0 && left[3] == 0 && left[4] == 0 ->
		printf("last client: claims\n");
		must(lock == NOBODY, stuck: the lock is kept);
		must(!acked || state == done && token == acked, an acknowledged answer is gone);
		must(effects == 0 || state != absent, an effect without a record) }
}

init
{
	atomic { run Leased(); run Guard(2); run Guard(1) }
}
