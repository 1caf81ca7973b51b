'use strict';

// A service on Express with its defaults, and method-override as its README has it. It says where it listens, and ends with
// its standard input.

const express = require('express');
const methodOverride = require('method-override');

const paid = [];

function pay(req, res) {
  paid.push({ account: req.get('X-Account') ?? '', fence: req.get('Idempotency-Fence') ?? '' });
  res.json(paid);
}

const app = express();
app.use((req, res, next) => {
  req.url = req.url.replace(/^\/\/+/, '/'); // as if a proxy in front had merged them
  next();
});
for (const name of ['X-HTTP-Method', 'X-HTTP-Method-Override', 'X-Method-Override', '_method']) {
  app.use(methodOverride(name));
}
app.use(express.urlencoded());
app.use(methodOverride((req) => req.body?._method));
app.post('/payments', pay);
app.put('/orders/:id', pay);
app.put('/refunds', pay);
app.use((req, res) => res.json(paid));

const server = app.listen(0, '127.0.0.1', () => console.log(server.address().port));
process.stdin.on('end', () => process.exit()).resume();
