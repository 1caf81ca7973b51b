/* The protocol of one key: the store's rules as transition.go has them, guards that use the store, and whatever can go
 * wrong between the two. README.md says what is left out, what is assumed and how to read this; run checks it.
 *
 * Every verb of the store is one d_step: nothing happens while it is executed. A verb that a guard sends either is
 * executed at once and answered, or stays on the network as a copy without a reply. A copy is executed at some later
 * time, or never, and overtakes others. That is a lost request, a lost reply and a late duplicate in one.
 */

/* ---- The world: what a check may choose, as -DPOLICY=RERUN ---- */

#define HOLD  0
#define RERUN 1
#define MIXED 2                 /* guard 1 holds, the others rerun */

#ifndef POLICY
#define POLICY HOLD
#endif
#ifndef GUARDS
#define GUARDS 2                /* each with one client */
#endif
#ifndef REQUESTS
#define REQUESTS 1              /* so often a client asks, at most */
#endif
#ifndef COPIES
#define COPIES 2                /* so many copies can be on the network at once */
#endif
#ifndef TRIES
#define TRIES 1                 /* so many copies of one claim */
#endif
#ifndef DECIDERS
#define DECIDERS 0              /* operators, or calls of Reconcile, each of which decides once */
#endif
#ifndef OBEY
#define OBEY 0                  /* 1: handlers obey their context, and no process is paused beyond the margin */
#endif
#ifndef STREAM
#define STREAM 0                /* 1: answers are streamed */
#endif
#ifndef TX
#define TX 0                    /* 1: effect and settle are one transaction */
#endif
#ifndef EXPIRY
#define EXPIRY 0                /* 1: retentions end, and records are swept */
#endif
#ifndef FORGET
#define FORGET 0                /* 1: deciders forget records instead of settling them */
#endif
#ifndef FAILOVER
#define FAILOVER 0              /* 1: once, the store may lose a record that it has acknowledged */
#endif
#ifndef OTHERS
#define OTHERS 0                /* 1: the client of guard 2 asks another request, under the same key */
#endif
#ifndef STEPS
#define STEPS 0                 /* 1: handlers may save a step first */
#endif
#ifndef NATIVE
#define NATIVE 0                /* 1: a claim of an absent record brings its fence along: the clock when it was sent */
#endif
#ifndef PROMISES
#define PROMISES 0              /* 1: requests are stored, and clients may be told that theirs will be finished */
#endif

/* ---- The clauses of the contract. -DWITHOUT=STATE leaves one out ---- */

#ifndef WITHOUT
#define WITHOUT 0
#endif
#define with(clause) (WITHOUT != clause)

/* of the store */
#define TOKEN         1         /* Extend and Settle compare the token */
#define FENCE         2         /* ... the fence */
#define STATE         3         /* ... the state: what is done or free stays so */
#define CLOSED        4         /* a stored unknown is closed to the owner that wrote it */
#define ANY_LEASE     5         /* Settle does not look at the lease */
#define REPEATED      6         /* a settle that is repeated succeeds */
#define SPENT         7         /* a token once settled is spent */
#define READ_ONLY     8         /* a refused claim writes nothing */
#define VALID_LEASE   9         /* nothing is taken over before its lease is over */
#define HOLD_RECORD  10         /* Hold counts if the record says so */
#define HOLD_CALLER  11         /* Hold counts if the caller says so */
#define MAYBE        12         /* a run under Rerun that its owner releases leaves maybe */
#define CLEAN        13         /* a release-by-token leaves no maybe */
#define CLEARED      14         /* who has seized a record, and releases it, clears maybe */
#define BEGUN_READS  15         /* a begun record whose lease is over reads as done */
#define BEGUN_ENDS   16         /* a begun record that is released ends done, without an answer */
#define CLOCK_FENCE  17         /* the fence of an absent record comes from the clock */
#define FRESH        18         /* a new operation inherits nothing */
#define UNDECIDED    19         /* Sweep leaves what waits for a decision */
#define NEW_OWNER    20         /* Seize raises the fence and replaces the token */
#define FORGET_OWNED 21         /* Forget compares fence, token and state */
#define SAME_REQUEST 22         /* a claim for another request is refused */
#define UNUSED       23         /* ... but starts a new operation on a free record that remembers nothing */
#define KEEPS_MAYBE  24         /* ... no maybe */
#define KEEPS_STEPS  25         /* ... no steps */
#define KEEPS_OWED   26         /* ... and nothing owed */
#define MARK         45         /* Forget leaves a mark for as long as a claim sent before may be under way */
/* of the guard */
#define SAME_TOKEN   27         /* all copies of a claim have one token */
#define RELEASE      28         /* a claim that may own unnoticed is released by token */
#define TWICE        29         /* ... and again, when no copy of the claim can be executed any more */
#define ABOVE        30         /* ... but only above the fence under which the handler ran */
#define FRESH_REPLY  31         /* a reply older than the margin starts no handler */
#define CANCEL       32         /* a handler under Rerun is cancelled at the margin */
#define LOST_HOLDS   33         /* a run that is lost under Hold settles as unknown */
#define ANSWER_LAST  34         /* the client is answered when the settle is acknowledged, not before */
#define NEVER_FREED  35         /* a settle without a reply is sent again, never replaced by a release */
#define FENCED_READS 36         /* the client of a fenced owner gets what the record says */
#define MARK_FIRST   37         /* no byte of a stream leaves before begun is acknowledged */
#define ASK_LAST     38         /* Reconcile asks the upstream after it has seized the record */
#define COMMIT_ASKED 39         /* what became of a commit without a reply is asked, not guessed */
#define OWN_ANSWER   40         /* a client gets the record's answer only to its own request */
/* assumed of others */
#define LIFE         41         /* a verb is executed within a request's life, or never */
#define PROMISE      42         /* under Hold a released status means that there was no effect */
#define OBEDIENT     43         /* a cancelled handler stops */
#define REFUSES      44         /* an upstream that says never refuses fences up to the one asked */

/* ---- The record ---- */

#define absent 0
mtype = { running, done, free, unknown };
mtype = { free_owed, unknown_owed };    /* outcomes: the same, and the end is owed */

typedef Record {
	mtype state;
	byte fence;
	byte token;
	bool over;              /* the lease is */
	bool hold;              /* the policy of the present run */
	bool begun;
	bool maybe;
	bool seized;
	bool steps;             /* one is saved */
	bool owed;              /* its client was promised its end, or has lost an answer, and its request is stored */
	byte request;           /* 1, or 2 for another one: the fingerprint */
	bool expired;           /* the retention is over */
	mtype wrote;            /* what this owner has settled with; 0 for nothing */
	byte answer;            /* when done: the fence of the run that gave it, DECISION more if a decider did; 0 for none */
};

#define DECISION 100

Record rec;
byte clock;                     /* the highest fence handed out */
bool fenced;                    /* the key is not empty: it keeps the fence of a record that was forgotten */

/* What a reader makes of it: Record.Reads. Unknown and done are derived here from a running record, never written. */
#define holds(caller)         (rec.hold && with(HOLD_RECORD) || caller && with(HOLD_CALLER))
#define lapsed                (rec.state == running && (rec.over || !with(VALID_LEASE)))
#define begun_over            (lapsed && rec.begun && with(BEGUN_READS))
#define reads_done            (rec.state == done || begun_over)
#define reads_free(caller)    (lapsed && !begun_over && !holds(caller) || rec.state == free && !(rec.maybe && caller))
#define reads_unknown(caller) (lapsed && !begun_over && holds(caller) || rec.state == free && rec.maybe && caller || \
			       rec.state == unknown)

/* Released, and nothing is remembered: the key has not been used. */
#define unused (with(UNUSED) && rec.state == free && !(rec.maybe && with(KEEPS_MAYBE)) && \
		!(rec.steps && with(KEEPS_STEPS)) && !(rec.owed && with(KEEPS_OWED)))

/* ---- The world outside of the store ---- */

#define NOBODY         0
#define token_of(g, n) (((g) - 1) * REQUESTS + (n))             /* of guard g for its client's request n */
#define guard_of(t)    (((t) - 1) / REQUESTS + 1)
#define hold_of(g)     (POLICY == HOLD || POLICY == MIXED && (g) == 1)
#define request_of(t)  ((OTHERS && guard_of(t) == 2) -> 2 : 1)
#define decider(d)     (GUARDS * REQUESTS + (d))
#define LAST           (GUARDS * REQUESTS + DECIDERS + 1)

byte using[GUARDS + 1];         /* the token of the claim that a guard is busy with */
bool late[GUARDS + 1];          /* the guard is at its margin: 80 % of the lease since it sent what was acknowledged last */
bool dead[GUARDS + 1];
byte barred;                    /* the upstream refuses fences up to this one */

/* ---- What the invariants remember. No rule looks at it ---- */

#if OTHERS
#define OPERATIONS 8
#else
#define OPERATIONS 4
#endif
byte op;                        /* the key stands for another operation after expiry, after forget and for another request */
byte runs;                      /* so far */
bool handled;                   /* the handler of the present run was started */
byte busy = GUARDS;             /* guards and deciders at work */
byte effects[OPERATIONS];       /* 2 for more */
bool held[OPERATIONS];          /* there is an effect of a run under Hold */
bool lost[OPERATIONS];          /* a run was: its lease was over, its owner released it, or it was seized */
bool said[OPERATIONS];          /* a run has settled as unknown, and nobody has decided since */
bool marked[OPERATIONS];        /* as begun */
bool bytes[OPERATIONS];         /* of a stream have left */
byte acked[OPERATIONS];         /* the answer that a client has got; 0 for none */
byte wanted[OPERATIONS];        /* the request */
bool passed[OPERATIONS];        /* its key has gone to another request */
bool stepped[OPERATIONS];       /* a step of it has had its effect */
bool promised[OPERATIONS];      /* its client was told that it will be finished */
bool nothing[LAST + 1];         /* the client of this token was told that nothing happened */

#define must(so, ...) if :: (so) -> skip :: else -> printf("BROKEN: "); printf(#__VA_ARGS__); printf("\n"); assert(false) fi

/* ---- The verbs of the store ---- */

/* f is the fence that the claim brings along, 0 for none. It counts only where the key is empty. */
#define empty_key (rec.state == absent && !(fenced && with(MARK)))

inline started(t, h, f)
{
	rec.fence = ((rec.state == absent && with(CLOCK_FENCE)) -> ((f && empty_key) -> f : clock + 1) : rec.fence + 1);
	clock = (rec.fence > clock -> rec.fence : clock);
	rec.state = running; rec.token = t; rec.hold = h; rec.over = false; rec.seized = false; rec.wrote = 0;
	runs++; handled = false
}

/* A new operation, for request q. */
inline starts_anew(t, h, q, f)
{
	rec.request = q; wanted[op] = q;
	started(t, h, f)
}

inline Claim(t, h, q, f, owned)
{
	if
	:: rec.state == absent ->
		starts_anew(t, h, q, f); owned = true
	:: rec.state != absent && rec.expired ->
		rec.expired = false; rec.answer = 0;
		if :: with(FRESH) -> rec.begun = false; rec.maybe = false; rec.steps = false; rec.owed = false :: else -> skip fi;
		op++;
		starts_anew(t, h, q, 0); owned = true
	:: rec.state != absent && !rec.expired && rec.token != t && rec.request != q && unused ->
		must(!effects[op] && !stepped[op], a key that was used goes to another request);
		must(!promised[op], a promise is dropped);
		passed[op] = true; rec.maybe = false; rec.steps = false; rec.owed = false;
		op++;
		starts_anew(t, h, q, 0); owned = true
	:: rec.state != absent && !rec.expired && rec.token == t ->     /* its own, whose reply was lost */
		owned = (rec.state == running || !with(SPENT));
		if :: owned -> rec.state = running; rec.over = false :: else -> skip fi
	:: rec.state != absent && !rec.expired && rec.token != t && !(rec.request != q && (unused || with(SAME_REQUEST))) &&
	   reads_free(h) ->
		must(!said[op], it runs again after unknown);
		must(!bytes[op], it runs again after begun);
		rec.maybe = rec.maybe || rec.state == running;
		rec.owed = rec.owed || PROMISES && rec.state == running;
		started(t, h, 0); owned = true
	:: else ->
		owned = false;
		if
		:: !with(READ_ONLY) && rec.state == running && reads_unknown(h) -> rec.state = unknown; rec.over = false
		:: else -> skip
		fi
	fi
}

#define mine(f, t) (rec.state != absent && (rec.token == t || !with(TOKEN)) && (rec.fence == f || !with(FENCE)))
/* Without these clauses: states other than running on which a run's owner may still act. */
#define still_open (rec.state == unknown && !rec.seized && !with(CLOSED) || \
		    (rec.state == done || rec.state == free) && !with(STATE))

inline Extend(f, t, b, owned)
{
	owned = mine(f, t) && (rec.state == running || still_open);
	if
	:: owned ->
		rec.state = running; rec.over = false; rec.expired = false; rec.begun = rec.begun || b;
		marked[op] = marked[op] || b
	:: else -> skip
	fi
}

inline SaveStep(f, t, owned)
{
	owned = mine(f, t) && rec.state == running;
	rec.steps = rec.steps || owned
}

#define has_begun (rec.begun && with(BEGUN_ENDS))
#define frees(o)  ((o) == free || (o) == free_owed)
#define doubts(o) ((o) == unknown || (o) == unknown_owed)

/* What a settle writes that is accepted. */
inline written(o, a, by_token)
{
	rec.wrote = o; rec.over = false; rec.expired = false;
	if
	:: o == done -> rec.state = done; rec.answer = a; rec.maybe = false; rec.owed = false
	:: o != done && has_begun -> rec.state = done; rec.answer = 0; rec.maybe = false; rec.owed = false
	:: !has_begun && doubts(o) -> rec.state = unknown; said[op] = true
	:: !has_begun && frees(o) && rec.seized -> rec.state = free; rec.maybe = rec.maybe && !with(CLEARED)
	:: !has_begun && frees(o) && !rec.seized && by_token ->
		rec.state = free; rec.maybe = rec.maybe || !rec.hold && !with(CLEAN)
	:: !has_begun && frees(o) && !rec.seized && !by_token ->
		rec.state = free; rec.maybe = rec.maybe || !rec.hold && with(MAYBE); lost[op] = (POLICY != HOLD)
	fi;
	if :: rec.seized && !doubts(o) -> said[op] = false; lost[op] = lost[op] && o != free :: else -> skip fi;
	rec.owed = rec.owed || (o == free_owed || o == unknown_owed) && rec.state != done;
	rec.seized = false
}

/* r is the run that the sender was told to own, 0 for a decider. */
inline Settle(f, t, o, r, owned)
{
	if
	:: !mine(f, t) -> owned = false
	:: mine(f, t) && (rec.state == running && (!rec.over || with(ANY_LEASE)) || rec.state == unknown && rec.seized ||
			  still_open) ->
		must(rec.seized || r == runs, a stale owner settles a later run);
		written(o, f + DECISION * (r == 0), false); owned = true
	:: else -> owned = (rec.wrote == o && with(REPEATED))
	fi
}

/* Settle(free) by an Owner with Above: any fence above f, with this token. */
inline Release(f, t)
{
	if
	:: rec.state == running && rec.token == t && (rec.fence > f || !with(ABOVE)) ->
		must(!handled, a release frees a run that may have its effect);
		written(free, 0, true)
	:: else -> skip
	fi
}

inline Seize(t)
{
	if :: with(NEW_OWNER) -> rec.fence++; clock = rec.fence; rec.token = t :: else -> skip fi;
	lost[op] = lost[op] || rec.state == running && POLICY != HOLD;
	rec.owed = rec.owed || PROMISES && rec.state == running;
	rec.state = unknown; rec.seized = true; rec.wrote = 0; rec.over = false
}

inline deleted()
{
	rec.state = absent; rec.fence = 0; rec.token = NOBODY; rec.over = false; rec.hold = false; rec.begun = false;
	rec.maybe = false; rec.seized = false; rec.expired = false; rec.wrote = 0; rec.answer = 0;
	rec.steps = false; rec.owed = false; rec.request = 0;
	handled = false
}

/* What the handler does in the world, under fence f, for operation x. */
inline Effect(f, t, x)
{
	if
	:: f > barred ->
		effects[x] = (effects[x] < 2 -> effects[x] + 1 : 2); held[x] = held[x] || hold_of(guard_of(t));
		must(!passed[x], an effect whose key has gone to another request);
		must(effects[x] < 2 || !held[x], two effects under Hold);
		must(effects[x] < 2 || lost[x], two effects, but no run was lost)
	:: else ->
		must(!(rec.state == running && !rec.over && rec.fence == f && rec.token == t), the upstream refuses the owner)
	fi
}

/* A COMMIT of effect and settle: both, or a rollback. */
inline Commit(f, t, x, r, owned)
{
	Settle(f, t, done, r, owned);
	if
	:: owned -> must(!nothing[t], said that nothing happened, but it commits); Effect(f, t, x)
	:: else -> skip
	fi
}

/* ---- The network ---- */

mtype = { claim, extend, mark, settle, commit, effect };
chan net = [COPIES + 1] of { mtype, byte, byte, byte, byte };   /* verb, fence, token, outcome or operation, run */

/* Sorted, so that two copies are the same state in either order. */
#define send(verb, f, t, x, r) len(net) < COPIES -> net !! verb, f, t, x, r
#define claim_under_way(t)     (net ?? [claim, _, eval(t), 0, 0])
#define sending                (NATIVE -> clock + 1 : 0)     /* one that is answered at once would get the same from a script */
#define extend_under_way(f, t) (net ?? [extend, eval(f), eval(t), 0, 0])

inline executed(v, f, t, x, r, owned)
{
	if
	:: v == claim -> Claim(t, hold_of(guard_of(t)), request_of(t), f, owned)
	:: v == extend -> Extend(f, t, false, owned)
	:: v == mark -> Extend(f, t, true, owned)
	:: v == settle -> Settle(f, t, x, r, owned)
	:: v == commit -> Commit(f, t, x, r, owned)
	:: v == effect -> Effect(f, t, x)
	fi
}

active proctype Network()
{
	mtype v, v2; byte f, t, x, r, f2, t2, x2, r2; bool owned;
end:
	do
	:: atomic {
		nempty(net) ->
		if
		:: net ? v, f, t, x, r
		:: len(net) == 2 -> net ? v2, f2, t2, x2, r2; net ? v, f, t, x, r; net ! v2, f2, t2, x2, r2
		fi;
		if
		:: d_step {
			printf("network: the copy of %e by token %d is executed\n", v, t);
			executed(v, f, t, x, r, owned) }
		:: printf("network: the copy of %e by token %d is lost\n", v, t)
		fi;
		d_step { fenced = fenced && nempty(net); v = 0; f = 0; t = 0; x = 0; r = 0; v2 = 0; f2 = 0; t2 = 0; x2 = 0; r2 = 0; owned = false } }
	od
}

/* ---- A guard, and the client that asks it ---- */

mtype = { asking, told, working, settling, owing, gone };
mtype = { ok, refused };
#define reply(owned) (owned -> ok : refused)

#define tok using[me]

#define answered (reads_done && (rec.request == request_of(tok) || !with(OWN_ANSWER)))

/* The client gets answer a, of operation x. */
inline answers(x, a)
{
	printf("guard %d: its client gets answer %d\n", me, a);
	must(a == 0 || wanted[x] == request_of(tok), a client gets the answer to another request);
	must(a == 0 || effects[x] > 0, a success without its effect);
	must(a == 0 || acked[x] == 0 || acked[x] == a, two clients get different answers);
	acked[x] = (a != 0 -> a : acked[x]);
	served = true
}

inline asks_next()
{
	fence = 0; about = 0; my_run = 0; above = 0; answer = 0; unheard = 0; outcome = 0; late[me] = false;
	owned = false; resent = false; did = false; begun = false; doubtful = false; saved = false; pledged = false;
	if
	:: n < REQUESTS && !served -> n++; tok = token_of(me, n); at = asking
	:: else -> n = 0; tok = NOBODY; served = false; at = gone; busy--
	fi
}

inline starts()
{
	printf("guard %d: starts the handler\n", me);
	at = working; above = fence; late[me] = late[me] && with(FRESH_REPLY);
	handled = handled || rec.state == running && rec.fence == fence && rec.token == tok
}

inline ends()                           /* the request, and pays what it owes: the first release-by-token */
{
	if
	:: resent && with(RELEASE) ->
		printf("guard %d: releases token %d above fence %d\n", me, tok, above);
		Release(above, tok);
		fence = 0; about = 0; my_run = 0; unheard = 0; outcome = 0;
		owned = false; did = false; begun = false; doubtful = false; saved = false; pledged = false;
		if :: with(TWICE) -> at = owing :: else -> asks_next() fi
	:: else -> asks_next()
	fi
}

inline is_lost()                        /* the handler, for a reason that the guard knows of */
{
	outcome = ((hold_of(me) && with(LOST_HOLDS)) -> unknown : (PROMISES -> free_owed : free)); at = settling
}

inline concluded()                      /* the settle was acknowledged */
{
	if
	:: owned && outcome == done -> answers(about, fence)
	:: owned && outcome != done -> nothing[tok] = doubtful
	:: !owned ->
		must(rec.state == absent || rec.fence > fence || rec.token != tok || doubtful || DECIDERS,
			an owner is fenced in vain);
		if
		:: with(FENCED_READS) && answered -> answer = rec.answer; answers(op, answer)
		:: !with(FENCED_READS) && outcome == done -> answers(about, fence)
		:: else -> skip
		fi
	fi;
	ends()
}

proctype Guard(byte me)
{
	byte n = 1;                     /* the client's request */
	mtype at = asking;
	byte fence, about, my_run;      /* of the run that it owns; about is the operation */
	byte above;                     /* the last fence under which it has started the handler */
	byte unheard, answer;
	mtype outcome;
	bool owned, served;
	bool resent;                    /* a copy of the claim has got no reply, or one that was too old */
	bool did, begun;                /* the handler has had its effect; its answer may leave */
	bool doubtful;                  /* its commit has got no reply */
	bool saved;                     /* its operation has a step */
	bool pledged;                   /* its client was told that it will be finished */

	tok = token_of(me, 1);
	do
	/* asking: it sends the claim until there is a reply, or it gives up. */
	:: d_step {
		at == asking ->
		Claim(tok, hold_of(me), request_of(tok), 0, owned);
		printf("guard %d: claims with token %d: %e, fence %d\n", me, tok, reply(owned), rec.fence);
		late[me] = false;
		if
		:: owned ->
			fence = rec.fence; about = op; my_run = runs; saved = rec.steps; unheard = 0;
			if :: OBEY -> at = told :: else -> starts() fi
		:: else ->
			if :: answered -> answer = rec.answer; answers(op, answer) :: else -> skip fi;
			ends()
		fi }
	:: d_step {
		at == asking && unheard < TRIES && send(claim, sending, tok, 0, 0);
		printf("guard %d: claims with token %d, no reply\n", me, tok);
		unheard++; resent = true;
		if :: !with(SAME_TOKEN) && n < REQUESTS -> n++; tok = token_of(me, n) :: else -> skip fi }
	:: d_step { at == asking && unheard > 0 -> printf("guard %d: gives up\n", me); ends() }

	/* told: that it owns the record. Where time is not counted (OBEY is 0) a reply too old is one that never came. */
	:: d_step { at == told && !(late[me] && with(FRESH_REPLY)) -> starts() }
	:: d_step { at == told && late[me] -> printf("guard %d: that reply is too old\n", me); resent = true; ends() }

	/* working: the handler runs, and the lease is renewed. */
	:: d_step {
		at == working && !did && !TX && !(OBEY && !hold_of(me) && late[me] && with(CANCEL) && with(OBEDIENT)) ->
		printf("guard %d: its handler has the effect\n", me);
		Effect(fence, tok, about);
		must(!OBEY || op != about || rec.fence == fence, an effect after the next run has started);
		if :: fence > barred -> did = true :: else -> is_lost() fi }
	:: d_step {
		at == working && !did && !TX && !OBEY && send(effect, fence, tok, about, 0);
		printf("guard %d: its upstream does not answer\n", me); is_lost() }
	:: d_step {
		STEPS && at == working && !did && !saved ->
		stepped[about] = true;
		SaveStep(fence, tok, saved);
		printf("guard %d: its handler saves a step: %e\n", me, reply(saved));
		if :: !saved -> is_lost() :: else -> skip fi }
	:: d_step {
		STEPS && at == working && !did && !saved ->
		stepped[about] = true;
		printf("guard %d: its handler is lost in a step\n", me); is_lost() }
	:: d_step {
		PROMISES && at == working && !pledged ->
		printf("guard %d: tells its client that it will be finished\n", me); promised[about] = true; pledged = true }
	:: d_step {
		at == working ->
		Extend(fence, tok, false, owned);
		printf("guard %d: extends: %e\n", me, reply(owned));
		late[me] = late[me] && !owned;
		if :: OBEY && !owned -> is_lost() :: else -> owned = true fi }
	:: d_step {
		at == working && !extend_under_way(fence, tok) && send(extend, fence, tok, 0, 0);
		printf("guard %d: extends, no reply\n", me) }
	:: d_step {
		STREAM && at == working && !begun ->
		Extend(fence, tok, true, begun);
		printf("guard %d: marks it begun: %e\n", me, reply(begun));
		if :: !begun -> is_lost() :: else -> skip fi }
	:: d_step {
		STREAM && at == working && !begun && send(mark, fence, tok, 0, 0);
		printf("guard %d: marks it begun, no reply\n", me) }
	:: d_step {
		STREAM && at == working && !bytes[about] && (begun || !with(MARK_FIRST)) ->
		printf("guard %d: the first byte leaves\n", me); bytes[about] = true }
	:: d_step { !with(ANSWER_LAST) && at == working && did && !served -> answers(about, fence) }

	/* settling: it sends the settle until there is a reply, or it gives up. */
	:: atomic {
		at == working || at == settling && !doubtful ->
		if
		:: at == working && (did || TX) -> outcome = done
		:: at == working && (!did || !hold_of(me) || !with(PROMISE)) -> outcome = (pledged -> free_owed : free)
		:: at == working && !hold_of(me) -> outcome = (pledged -> unknown_owed : unknown)    /* its handler can't tell */
		:: at == working -> is_lost()
		:: at == settling -> skip
		fi;
		at = settling;
		if
		:: d_step {
			!(TX && outcome == done) ->
			Settle(fence, tok, outcome, my_run, owned);
			printf("guard %d: settles as %e under fence %d: %e\n", me, outcome, fence, reply(owned));
			concluded() }
		:: d_step {
			!(TX && outcome == done) && send(settle, fence, tok, outcome, my_run);
			printf("guard %d: settles as %e under fence %d, no reply\n", me, outcome, fence);
			outcome = (with(NEVER_FREED) -> outcome : free) }
		:: d_step {
			TX && outcome == done ->
			Commit(fence, tok, about, my_run, owned);
			printf("guard %d: commits under fence %d: %e\n", me, fence, reply(owned));
			outcome = (owned -> done : free);
			concluded() }
		:: d_step {
			TX && outcome == done && send(commit, fence, tok, about, my_run);
			printf("guard %d: commits under fence %d, no reply\n", me, fence);
			outcome = free; doubtful = true }
		fi }
	:: d_step {
		at == settling && doubtful && with(COMMIT_ASKED) ->
		Settle(fence, tok, free, my_run, owned);
		printf("guard %d: asks, by settling as free under fence %d: %e\n", me, fence, reply(owned));
		concluded() }
	:: d_step {
		at == settling && doubtful && !with(COMMIT_ASKED) ->
		printf("guard %d: tells its client that nothing happened\n", me);
		must(rec.state != done || rec.token != tok, said that nothing happened, but it commits);
		nothing[tok] = true; ends() }
	:: d_step { at == settling -> printf("guard %d: stops settling\n", me); ends() }

	/* owing: the second release-by-token, when a request's life is over. */
	:: d_step {
		at == owing && (!claim_under_way(tok) || !with(LIFE)) ->
		printf("guard %d: releases token %d above fence %d again\n", me, tok, above);
		Release(above, tok); asks_next() }

	:: d_step {
		at != gone ->
		if
		:: at == asking && unheard == 0 -> printf("guard %d: is asked no more\n", me)
		:: else -> printf("guard %d: dies\n", me); dead[me] = (POLICY != RERUN)
		fi;
		n = REQUESTS; asks_next() }
	:: at == gone -> break
	od
}

/* ---- An operator, or a call of Reconcile ---- */

#define seizable (rec.token != LAST && (rec.state == unknown || rec.state == running && !begun_over || \
					rec.state == free && rec.maybe))
#define forgettable (rec.state == done || begun_over || rec.state == free || rec.state == unknown && rec.seized)

mtype = { forgotten };

inline inquires()
{
	if
	:: d_step { effects[about] > 0 -> printf("decider: asks under fence %d: it was done\n", fence); verdict = done }
	:: d_step {
		effects[about] == 0 ->
		printf("decider: asks under fence %d: it was not, and never will be\n", fence); verdict = free;
		barred = ((with(REFUSES) && fence > barred) -> fence : barred) }
	:: printf("decider: asks: it can't be told\n")
	fi
}

proctype Decider(byte me)
{
	byte fence, token, about;
	mtype verdict;
	bool owned, asked;

	if
	:: !with(ASK_LAST) ->
endasks:	d_step { rec.token != LAST && reads_unknown(POLICY != RERUN) -> fence = rec.fence; about = op; busy++ }
		inquires();
		asked = true
	:: else -> skip
	fi;
endwaits:
	if
	:: d_step {
		seizable ->
		Seize(decider(me)); fence = rec.fence; token = rec.token; about = op;
		printf("decider: seizes: fence %d, token %d\n", fence, token);
		if :: !asked -> busy++ :: else -> skip fi }
		if
		:: FORGET -> verdict = forgotten
		:: !FORGET && !asked -> inquires()
		:: else -> skip
		fi
	:: d_step {
		FORGET && forgettable ->
		fence = rec.fence; token = rec.token; about = op; verdict = forgotten;
		printf("decider: looks at fence %d\n", fence);
		busy++ }
	fi;
	do
	:: d_step {
		verdict == forgotten ->
		owned = (rec.fence == fence && rec.token == token && forgettable || !with(FORGET_OWNED) && rec.state != absent);
		printf("decider: forgets what it has seen: %e\n", reply(owned));
		if
		:: owned -> deleted(); fenced = NATIVE; op = (op == about -> op + 1 : op)
		:: else -> skip
		fi;
		owned = false }
		break
	:: d_step {
		verdict == done || verdict == free ->
		Settle(fence, token, verdict, 0, owned);
		printf("decider: settles as %e under fence %d: %e\n", verdict, fence, reply(owned)) }
		break
	:: d_step {
		(verdict == done || verdict == free) && send(settle, fence, token, verdict, 0);
		printf("decider: settles as %e under fence %d, no reply\n", verdict, fence) }
	:: break                        /* it dies, or leaves it for later */
	od;
	atomic { busy--; fence = 0; token = 0; about = 0; verdict = 0; owned = false; asked = false }
}

/* ---- Time, and failover ---- */

#define owner         guard_of(rec.token)
/* The margin of an owner that counts its time ends before its lease does. */
#define lease_may_end (rec.token != LAST && (!OBEY || using[owner] != rec.token || late[owner]))
/* Retentions are longer than a request's life. */
#define retention_may_end (EXPIRY && op < 2 && empty(net))

active proctype Time()
{
	bool failed;
end:
	do
	:: d_step {
		rec.state == running && !rec.over && lease_may_end ->
		printf("time: the lease of fence %d is over\n", rec.fence); rec.over = true; lost[op] = (POLICY != HOLD) }
	:: d_step { OBEY && using[1] && !late[1] -> printf("time: guard 1 is at its margin\n"); late[1] = true }
	:: d_step { OBEY && using[2] && !late[2] -> printf("time: guard 2 is at its margin\n"); late[2] = true }
	:: d_step {
		retention_may_end && reads_done && !rec.expired ->
		printf("time: the retention of fence %d is over\n", rec.fence); rec.expired = true }
	:: d_step {
		retention_may_end && (rec.expired || rec.state == free || lapsed && !rec.hold && !rec.begun) ->
		printf("time: the record is swept\n"); deleted(); op++ }
	:: d_step {
		retention_may_end && !with(UNDECIDED) && (rec.state == unknown || lapsed && rec.hold) ->
		printf("time: the record is swept\n"); deleted() }
	:: d_step {
		FAILOVER && !failed && rec.state != absent && empty(net) ->
		printf("failover: the record is lost\n"); failed = true; deleted(); op++; clock-- }
	od
}

/* ---- When all else has ended, one more client asks: no key is stuck, and what was acknowledged stands ---- */

#define quiet      (busy == 0 && empty(net) && (rec.state != running || rec.over))
#define has_reason (rec.state == running && (handled || dead[owner]) || rec.state == unknown && (rec.seized || said[op]) || \
		    rec.state == free && lost[op])

active proctype Last()
{
	bool owned, h; byte about, q;
end:
	atomic {
		quiet ->
		if :: POLICY != RERUN -> h = true :: POLICY != HOLD -> h = false fi;
		if :: q = 1 :: OTHERS -> q = 2 fi;
		d_step {
			about = op;
			Claim(LAST, h, q, 0, owned);
			printf("last client: claims: %e\n", reply(owned));
			if
			:: owned -> must(op != about || !acked[op], an acknowledged answer is gone)
			:: !owned && rec.request != q ->
				must(rec.state != free || rec.owed || lost[op] || stepped[op], an unused key refuses another request)
			:: !owned && rec.request == q && reads_done ->
				must(!acked[op] || acked[op] == rec.answer, an acknowledged answer is gone);
				must(!rec.answer || effects[op] > 0, a success without its effect);
				must(rec.answer || marked[op], stuck as done without an answer)
			:: !owned && rec.request == q && !reads_done ->
				must(reads_unknown(h), stuck: neither owned nor answered);
				must(!acked[op], an acknowledged answer is gone);
				must(has_reason, stuck as unknown without a reason)
			fi } }
}

/* States that must be found, or the checks would say nothing. -DWITNESS=reran looks for one */
#define reran    (effects[0] == 2 && acked[0] > 1)                      /* Rerun has repeated an effect, and answered once */
#define decided  (acked[0] > DECISION)                  /* a client has got a decider's answer */
#define never    (barred && effects[0] && acked[0] && acked[0] < DECISION)           /* nothing had happened, so it ran again */
#define renewed  (acked[0] && acked[1])                                 /* the key has stood for two operations */
#define corrected (passed[0] && acked[1])               /* another request has a released key, and an answer */
#define revived  (passed[1] && rec.token == 1)             /* ... and after its release the first one, by a late copy */

#ifdef WITNESS
active proctype Witness() { end: d_step { WITNESS -> must(false, found) } }
#endif

init
{
	atomic {
#if DECIDERS > 1
		run Decider(2);
#endif
#if DECIDERS > 0
		run Decider(1);
#endif
#if GUARDS > 2
		run Guard(3);
#endif
		run Guard(2);
		run Guard(1)
	}
}
