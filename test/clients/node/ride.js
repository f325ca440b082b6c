// kafkajs through faults: an idempotent producer and a consumer that go on until the
// input ends, and print what they saw: "ack VALUE PARTITION OFFSET", "read PARTITION OFFSET
// VALUE", and in the end "all ok". With RIDE_LOG, what kafkajs does is in that file.
const fs = require('fs');
const net = require('net');
const { Kafka, logLevel } = require('kafkajs');

const [brokers, topic, first] = process.argv.slice(2);
const batch = 20;
let over = false;
process.stdin.on('data', () => {});
process.stdin.on('end', () => { over = true; });

// kafkajs asks for metadata where it is connected, and keeps a connection whose requests get
// no answer in time: when a broker is cut off that led all partitions, it asks nobody else
// for as long as that lasts. A connection on which nothing is heard for a while ends here.
// A consumer that begins anew goes back to the broker that it began with, as long as that
// takes connections, which one that is stopped does: it is refused here for a while, and the
// next one is asked.
const silent = new Map();
const silentFor = 3000;
const silentMost = 4500;
function socketFactory({ host, port, onConnect }) {
  const socket = net.connect({ host, port }, onConnect);
  if (Date.now() - (silent.get(host) || 0) < silentFor) {
    process.nextTick(() => socket.destroy(new Error('not heard of a moment ago')));
    return socket;
  }
  let heard = Date.now();
  socket.on('data', () => { heard = Date.now(); });
  const look = setInterval(() => {
    if (Date.now() - heard > silentMost) {
      silent.set(host, Date.now());
      socket.destroy(new Error('nothing heard'));
    }
  }, 500);
  return socket.on('close', () => clearInterval(look));
}

// logToFile has kafkajs log to a file what it says, but for each request and answer.
function logToFile(path) {
  const file = fs.openSync(path, 'w');
  return () => ({ label, log }) => {
    const { timestamp, message, logger, ...rest } = log;
    if (!/^(Request|Response) /.test(message)) fs.writeSync(file, `${timestamp} ${label} ${message} ${JSON.stringify(rest)}\n`);
  };
}

async function main() {
  const path = process.env.RIDE_LOG;
  const kafka = new Kafka({
    clientId: 'kafkajs-ride', brokers: brokers.split(','), logLevel: path ? logLevel.DEBUG : logLevel.NOTHING,
    logCreator: path ? logToFile(path) : undefined,
    socketFactory, connectionTimeout: 1000, requestTimeout: 3000, enforceRequestTimeout: true,
    retry: { retries: 1000, initialRetryTime: 50, maxRetryTime: 500 },
  });
  const consumer = kafka.consumer({
    groupId: `${topic}-readers`, sessionTimeout: 10000, heartbeatInterval: 1000,
    // What waits for others to join hears nothing for that long: less than a connection may be silent.
    rebalanceTimeout: 3000,
    metadataMaxAge: 2000, maxWaitTimeInMs: 500,
  });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  consumer.on(consumer.events.GROUP_JOIN, () => console.log('assigned'));
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    if (!payload.restart) fail(payload.error); // Else it would be silent for ever.
  });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => console.log(`read ${partition} ${message.offset} ${message.value}`),
  });
  const producer = kafka.producer({ idempotent: true, metadataMaxAge: 2000 });
  await producer.connect();
  for (let n = 0; !over;) {
    // One batch at a time, as idempotence of kafkajs wants it.
    const partition = n % 3;
    const values = [];
    for (let i = 0; i < batch; i++) values.push(String(Number(first) + n * batch + i));
    const [at] = await producer.send({ topic, acks: -1, messages: values.map((value) => ({ value, partition })) });
    values.forEach((value, i) => console.log(`ack ${value} ${partition} ${Number(at.baseOffset) + i}`));
    n++;
  }
  await producer.disconnect();
  await consumer.disconnect();
  console.log('all ok');
}

function fail(e) {
  console.log('failed: ' + e.stack);
  process.exit(1);
}
main().then(() => process.exit(0), fail);
