import { createElement, StrictMode, useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { createClient, operations } from "@semelhq/client";

const client = operations(createClient()); // one for all components
const order = new URLSearchParams(location.search).get("order");
globalThis.mounts = 0;

function Checkout() {
  const [state, setState] = useState("paying");
  useEffect(() => {
    globalThis.mounts++;
    const gone = new AbortController();
    client
      .operation(`checkout-${order}`)
      .fetch("/payments", { method: "POST", body: JSON.stringify({ order }), signal: gone.signal })
      .then((answer) => setState(answer.ok ? "paid" : "declined"))
      .catch((error) => gone.signal.aborted || setState(`not known yet: ${error.message}`));
    return () => gone.abort();
  }, []);
  return createElement("p", { id: "state" }, state);
}

createRoot(document.getElementById("root")).render(createElement(StrictMode, null, createElement(Checkout)));
