// The jobs of README.md with kafkajs.
const { Kafka, logLevel } = require('kafkajs');

async function send(producer, topic, partition, value) {
  const [metadata] = await producer.send({ topic, acks: -1, messages: [{ key: 'kafkajs', value, partition }] });
  return Number(metadata.baseOffset);
}

async function main() {
  if (process.argv.length !== 7) {
    console.log('usage: kafkajs.js refused|write BOOTSTRAP TOPIC PARTITION OTHER|VALUE');
    return;
  }
  const [job, bootstrap, topic, partition, last] = process.argv.slice(2);
  const kafka = new Kafka({ clientId: 'interop', brokers: bootstrap.split(','), logLevel: logLevel.NOTHING });
  const producer = kafka.producer({ allowAutoTopicCreation: false });
  await producer.connect();
  if (job === 'write') {
    console.log(JSON.stringify({ offset: await send(producer, topic, Number(partition), last) }));
  } else {
    const begin = Date.now();
    let error = null;
    try {
      await send(producer, topic, Number(partition), 'must be refused');
    } catch (e) {
      error = String(e.cause || e);
    }
    const took = Date.now() - begin;
    const other = await send(producer, last, 0, 'same producer, ordinary topic');
    console.log(JSON.stringify({ error, refused_ms: took, other_offset: other }));
  }
  await producer.disconnect();
}

main().then(() => process.exit(0), error => { console.error(error); process.exit(1); });
