// Verifies webhooks, and signs them, with the packages that the path names.
//
//   POST /verify/PACKAGE   204 if the package accepts the request, else 401
//   POST /sign/PACKAGE     the headers of the body, for the webhook-id and the webhook-timestamp of the request
//
// It prints the address at which it listens, and ends with its standard input.
const http = require("node:http");

const secret = process.argv[2];
const packages = {
  standardwebhooks: new (require("standardwebhooks").Webhook)(secret),
  svix: new (require("svix").Webhook)(secret),
};

const server = http.createServer((request, response) => {
  const chunks = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", () => {
    const payload = Buffer.concat(chunks).toString();
    const [, verb, name] = request.url.split("/");
    const id = request.headers["webhook-id"];
    if (verb === "sign") {
      const at = new Date(1000 * request.headers["webhook-timestamp"]);
      response.setHeader("webhook-signature", packages[name].sign(id, at, payload));
      response.writeHead(204).end();
      return;
    }
    try {
      packages[name].verify(payload, request.headers);
      response.writeHead(204).end();
    } catch (err) {
      response.writeHead(401).end(err.message);
    }
  });
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
process.stdin.resume().on("end", () => process.exit());
