export * from "@semelhq/client";
