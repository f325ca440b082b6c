// kafkajs: produce, consume in a group, commit, seek, admin.
const { Kafka, CompressionTypes, logLevel } = require('kafkajs');
const assert = require('assert');

const deadline = (promise, what) => Promise.race([promise,
  new Promise((_, no) => setTimeout(() => no(new Error('timed out: ' + what)), 40000).unref())]);

async function main() {
  const kafka = new Kafka({ clientId: 'kafkajs-check', brokers: [process.argv[2]], logLevel: logLevel.ERROR });
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ waitForLeaders: true, topics: [{ topic: 'n-topic', numPartitions: 3 }] });
  const producer = kafka.producer({ idempotent: true });
  await producer.connect();
  for (const compression of [CompressionTypes.None, CompressionTypes.GZIP]) {
    for (let b = 0; b < 10; b++) {
      const messages = [];
      for (let i = 0; i < 100; i++) messages.push({ key: `k${i % 10}`, value: `v${b}-${i}`, headers: { h: 'x' } });
      await producer.send({ topic: 'n-topic', compression, messages });
    }
  }
  await producer.disconnect();
  console.log('ok produce');

  const consumer = kafka.consumer({ groupId: 'n-group', sessionTimeout: 6000, heartbeatInterval: 500 });
  await consumer.connect();
  await consumer.subscribe({ topics: ['n-topic'], fromBeginning: true });
  const seen = new Set();
  let replayed;
  const replay = new Promise((yes) => { replayed = yes; });
  await deadline(new Promise((done) => {
    consumer.run({
      eachMessage: async ({ partition, message }) => {
        const at = `${partition}/${message.offset}`;
        if (seen.size === 2000 && partition === 0 && message.offset === '0') replayed();
        seen.add(at);
        if (seen.size === 2000) done();
      },
    });
  }), '2000 records');
  console.log('ok consume');
  consumer.seek({ topic: 'n-topic', partition: 0, offset: '0' });
  await deadline(replay, 'replay after seek');
  await consumer.disconnect();
  console.log('ok seek');
  const offsets = await admin.fetchTopicOffsets('n-topic');
  assert.strictEqual(offsets.reduce((n, p) => n + Number(p.high), 0), 2000);
  await admin.resetOffsets({ groupId: 'n-group', topic: 'n-topic', earliest: true });
  await admin.deleteGroups(['n-group']);
  await admin.deleteTopics({ topics: ['n-topic'] });
  await admin.disconnect();
  console.log('all ok');
}
main().then(() => process.exit(0), (e) => { console.error(e); process.exit(1); });
