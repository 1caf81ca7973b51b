import { createClient } from "@semelhq/client";

const client = createClient();

addEventListener("install", () => skipWaiting());
addEventListener("activate", (event) => event.waitUntil(clients.claim()));
addEventListener("fetch", (event) => {
  if (event.request.method !== "GET") event.respondWith(client.fetch(event.request)); // once, however often it is sent
});
