// Runs operations with AWS Powertools for TypeScript: one request per line on standard input, its response on standard output.
//
// Requests and responses are JSON. Values of operations (data, results) are JSON texts within them, so that only Powertools reads or
// writes them. tests/powertools/worker.rs sends the requests.

import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

const require = createRequire(join(process.env.POWERTOOLS_MODULES, 'workers.js'));
const { IdempotencyConfig, makeIdempotent } = require('@aws-lambda-powertools/idempotency');
const { DynamoDBPersistenceLayer } = require('@aws-lambda-powertools/idempotency/dynamodb');
const { DynamoDBClient } = require('@aws-sdk/client-dynamodb');
// The function that computes the package's keys, which the package does not export.
const { deepSort } = require(
  join(dirname(require.resolve('@aws-lambda-powertools/idempotency')), 'deepSort.js')
);

console.warn = () => {};

const UNDEFINED = 'undefined';
const parse = (text) => (text === UNDEFINED ? undefined : JSON.parse(text));

const run = (request) => {
  const state = { ran: false };
  const entered = new Promise((resolve) => {
    state.entered = resolve;
  });
  const goesOn = new Promise((resolve) => {
    state.goOn = resolve;
  });
  if (!request.hold) state.goOn();
  const persistenceStore = new DynamoDBPersistenceLayer({
    tableName: request.table,
    clientConfig: { endpoint: request.endpoint },
    ...request.layer,
  });
  const config = new IdempotencyConfig(request.options ?? {});
  if (request.remaining !== undefined && request.remaining !== null) {
    config.registerLambdaContext({ getRemainingTimeInMillis: () => request.remaining });
  }
  const call = makeIdempotent(
    async () => {
      state.ran = true;
      state.entered();
      await goesOn;
      if (request.fails) throw new Error('Failed');
      return parse(request.result);
    },
    { persistenceStore, config, keyPrefix: request.prefix }
  );
  state.answer = call(JSON.parse(request.data))
    .then((result) => ({ result: result === undefined ? UNDEFINED : JSON.stringify(result) }))
    .catch((error) => ({ error: error.name }))
    .then((answer) => {
      state.entered();
      return { ...answer, ran: state.ran };
    });
  state.begun = entered;
  return state;
};

class Hasher extends DynamoDBPersistenceLayer {
  constructor() {
    super({ tableName: 'none' });
    this.configure({ config: new IdempotencyConfig({}), keyPrefix: 'p' });
  }

  of(data) {
    return this.getHashedIdempotencyKey(data).slice('p#'.length);
  }
}

const held = new Map();
const actions = {
  text: ({ data }) => {
    const value = JSON.parse(data);
    return { text: JSON.stringify(deepSort(value)), hash: new Hasher().of(value) };
  },
  run: async (request) => {
    const state = run(request);
    if (!request.hold) return state.answer;
    await state.begun;
    held.set(request.hold, state);
    return state.ran ? { ran: true } : state.answer;
  },
  resume: async (request) => {
    const state = held.get(request.held);
    held.delete(request.held);
    state.goOn();
    return state.answer;
  },
};

// Without `node:readline`, which also ends lines at U+2028.
let input = '';
process.stdin.setEncoding('utf8');
for await (const chunk of process.stdin) {
  input += chunk;
  for (let end = input.indexOf('\n'); end >= 0; end = input.indexOf('\n')) {
    const request = JSON.parse(input.slice(0, end));
    input = input.slice(end + 1);
    console.log(JSON.stringify(await actions[request.do](request)));
  }
}
