import { createClient } from "@semelhq/client";
globalThis.client = createClient();
