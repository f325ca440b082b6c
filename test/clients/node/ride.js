// kafkajs through faults: an idempotent producer and a consumer that go on until the
// input ends, and print what they saw: "ack VALUE PARTITION OFFSET", "read PARTITION OFFSET
// VALUE", and in the end "all ok".
const { Kafka, logLevel } = require('kafkajs');

const [brokers, topic, first] = process.argv.slice(2);
const batch = 20;
let over = false;
process.stdin.on('data', () => {});
process.stdin.on('end', () => { over = true; });

async function main() {
  const kafka = new Kafka({
    clientId: 'kafkajs-ride', brokers: brokers.split(','), logLevel: logLevel.NOTHING,
    connectionTimeout: 1000, requestTimeout: 3000, enforceRequestTimeout: true,
    retry: { retries: 1000, initialRetryTime: 50, maxRetryTime: 500 },
  });
  const consumer = kafka.consumer({
    groupId: `${topic}-readers`, sessionTimeout: 10000, rebalanceTimeout: 10000, heartbeatInterval: 1000,
    metadataMaxAge: 2000, maxWaitTimeInMs: 500,
  });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  consumer.on(consumer.events.GROUP_JOIN, () => console.log('assigned'));
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
main().then(() => process.exit(0), (e) => { console.log('failed: ' + e.stack); process.exit(1); });
