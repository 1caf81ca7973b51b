'use strict';

// A small payments API. Its idempotency is that of express-idempotency, used as its README has it, with no option set.
//
//   npm ci && PORT=3000 node server.js
//
// Without PORT it takes a free port. It prints where it listens, and keeps in the working folder what has to outlive a
// crash: its process id in "pid", and one line for each payment in "payments.ndjson". With OWNER, a process id, it ends
// when that process has ended.

const { randomUUID } = require('node:crypto');
const fs = require('node:fs');
const { setTimeout: sleep } = require('node:timers/promises');

const express = require('express');
const { idempotency, getSharedIdempotencyService } = require('express-idempotency');

const customers = new Map([['Bearer alice', 'alice'], ['Bearer bob', 'bob']]);

const ledger = 'payments.ndjson';
const payments = fs.existsSync(ledger)
  ? fs.readFileSync(ledger, 'utf8').split('\n').filter(Boolean).map((line) => JSON.parse(line))
  : [];
const running = new Set();
const limited = new Set();

// pay is the effect. It is in the file when pay returns.
function pay(req) {
  const { order, amount } = req.body;
  const payment = { id: `pay_${payments.length + 1}`, customer: req.customer, order, amount };
  fs.appendFileSync(ledger, JSON.stringify(payment) + '\n');
  payments.push(payment);
  return payment;
}

function created(res, payment) {
  return res.status(201).location(`/payments/${payment.id}`);
}

const app = express();
app.set('env', 'production'); // no stacks in answers
app.use(express.json({ limit: '1mb' }));
app.post('*', (req, res, next) => {
  req.customer = customers.get(req.get('Authorization'));
  if (req.customer === undefined) {
    res.set('WWW-Authenticate', 'Bearer').status(401).json({ error: 'who are you?' });
    return;
  }
  next();
});
app.post('*', idempotency());

// post adds a handler that begins as those of the README do: what was answered by the middleware is not run again.
function post(path, handle) {
  app.post(path, async (req, res, next) => {
    if (getSharedIdempotencyService().isHit(req)) {
      return;
    }
    const { order, amount } = req.body;
    if (typeof order !== 'string' || order === '' || !Number.isInteger(amount) || amount <= 0) {
      res.status(422).json({ error: 'order is a text, amount a whole number above 0' });
      return;
    }
    running.add(order);
    try {
      await handle(req, res);
    } catch (error) {
      next(error);
    } finally {
      running.delete(order);
    }
  });
}

post('/payments', (req, res) => {
  const payment = pay(req);
  created(res, payment).json(payment);
});

const delay = (req) => sleep(Number(req.query.ms));

post('/payments/slow', async (req, res) => {
  await delay(req);
  const payment = pay(req);
  created(res, payment).json(payment);
});

post('/payments/slow-answer', async (req, res) => {
  const payment = pay(req);
  await delay(req);
  created(res, payment).json(payment);
});

post('/payments/declined', (req, res) => {
  res.status(402).json({ error: 'the card was declined', decision: randomUUID() });
});

post('/payments/failing', (req, res) => {
  const payment = pay(req);
  res.status(500).json({ error: `the receipt of ${payment.id} was not sent` });
});

post('/payments/throwing', (req) => {
  const payment = pay(req);
  throw new Error(`the receipt of ${payment.id} was not sent`);
});

post('/payments/limited', (req, res) => {
  if (!limited.has(req.body.order)) {
    limited.add(req.body.order);
    res.set('Retry-After', '1').status(429).json({ error: 'too many requests' });
    return;
  }
  const payment = pay(req);
  created(res, payment).json(payment);
});

post('/payments/dropped', (req, res) => {
  pay(req);
  res.socket.destroy();
});

post('/payments/large', (req, res) => {
  const payment = pay(req);
  created(res, payment).json({ ...payment, receipt: 'receipt '.repeat(1 << 17) });
});

post('/payments/empty', (req, res) => {
  created(res, pay(req)).status(204).end();
});

// As the one before, by the other way in which Express sends no body.
post('/payments/empty-sent', (req, res) => {
  created(res, pay(req)).sendStatus(204);
});

post('/payments/binary', (req, res) => {
  const payment = pay(req);
  const bytes = Buffer.from(Array.from({ length: 1024 }, (_, i) => (i * 7 + payments.length) & 0xff));
  created(res, payment).type('application/octet-stream').send(bytes);
});

post('/payments/stream', async (req, res) => {
  const payment = pay(req);
  res.status(200).type('text/event-stream');
  for (const state of ['accepted', 'cleared', 'booked']) {
    res.write(`event: ${state}\ndata: ${payment.id}\n\n`);
    await sleep(20);
  }
  res.end();
});

app.get('/payments', (req, res) => {
  res.json({ payments, running: [...running] });
});

app.get('/payments/:id', (req, res) => {
  const payment = payments.find(({ id }) => id === req.params.id);
  if (payment === undefined) {
    res.status(404).json({ error: 'there is no such payment' });
    return;
  }
  res.json(payment);
});

// After a crash another process may have the port for a moment, at its end of a connection.
function listen(port) {
  const server = app.listen(port, '127.0.0.1');
  server.on('listening', () => {
    fs.writeFileSync('pid', `${process.pid}\n`);
    console.log(`listening on http://127.0.0.1:${server.address().port}`);
  });
  server.on('error', (error) => {
    if (error.code !== 'EADDRINUSE') {
      throw error;
    }
    console.error(`port ${port} is taken: trying again`);
    setTimeout(listen, 100, port);
  });
}

if (process.env.OWNER) {
  setInterval(() => {
    try {
      process.kill(Number(process.env.OWNER), 0);
    } catch {
      process.exit(0);
    }
  }, 1000);
}
listen(Number(process.env.PORT ?? 0));
