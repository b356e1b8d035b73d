// Makes one charge with a client for Node.js: node clients.mjs CLIENT CALL
//
// The client is `axios-retry` or `stripe-node`, and the call is an object in JSON. The result of the client is written to
// standard output, as an object with `status` and `body`.

import { createRequire } from 'node:module';
import { join } from 'node:path';

const require = createRequire(join(process.env.CLIENTS_MODULES, 'clients.js'));

const clients = {
  // Retries lost connections, 429 and 5xx. By default it retries no POST after a response, and no timeout.
  async 'axios-retry'({ url, key, token, body, timeout }) {
    const { default: axios } = require('axios');
    const { default: axiosRetry, exponentialDelay, isRetryableError } = require('axios-retry');
    const client = axios.create({ timeout, proxy: false, transitional: { clarifyTimeoutError: true } });
    axiosRetry(client, {
      retries: 8,
      retryCondition: isRetryableError,
      retryDelay: exponentialDelay,
      shouldResetTimeout: true,
    });
    const reply = ({ status, data }) => ({ status, body: data });
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json', 'idempotency-key': key };
    return client.post(url, body, { headers }).then(reply, (error) => reply(error.response));
  },

  // Retries lost connections, timeouts, 409 and 5xx. Without a key it draws one for each call.
  async 'stripe-node'({ url, key, token, body, timeout, retries }) {
    const Stripe = require('stripe');
    const { hostname, port } = new URL(url);
    const settings = { protocol: 'http', host: hostname, port, timeout, maxNetworkRetries: retries, telemetry: false };
    const options = key === null ? {} : { idempotencyKey: key };
    return new Stripe(token, settings).paymentIntents.create(JSON.parse(body), options).then(
      (intent) => ({ status: intent.lastResponse.statusCode, body: intent }),
      ({ type, statusCode, code, message }) => ({ status: statusCode ?? 0, body: { type, code, message } })
    );
  },
};

const [, , client, call] = process.argv;
console.log(JSON.stringify(await clients[client](JSON.parse(call))));
