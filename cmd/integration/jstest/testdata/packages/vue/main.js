import { createApp, h, ref } from "vue";
import { createClient, operations } from "@semelhq/client";

const client = operations(createClient()); // one for all components
const order = new URLSearchParams(location.search).get("order");

const Checkout = {
  setup() {
    const state = ref("ready");
    async function pay() {
      state.value = "paying";
      try {
        const answer = await client.operation(`checkout-${order}`).fetch("/payments", { method: "POST", body: JSON.stringify({ order }) });
        state.value = answer.ok ? "paid" : "declined";
      } catch (error) {
        state.value = `not known yet: ${error.message}`;
      }
    }
    return () => [h("button", { id: "pay", onClick: pay }, "Pay"), h("p", { id: "state" }, state.value)];
  },
};

createApp(Checkout).mount("#root");
