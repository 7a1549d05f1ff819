// Digest BOOTSTRAP TOPIC END[,END…]
// Reads every partition from its beginning up to the end given for it, once with each isolation level, and prints for
// each: ISOLATION PARTITION COUNT SHA256, over offset, timestamp, leader epoch, key, value and headers of each record.
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class Digest {
    static final long LIMIT_MS = 60_000;

    public static void main(String[] arguments) throws Exception {
        String[] ends = arguments[2].split(",");
        for (String isolation : new String[] {"read_committed", "read_uncommitted"}) {
            Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0], "isolation.level", isolation, "auto.offset.reset", "earliest", "fetch.max.wait.ms", "100");
            try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                read(consumer, arguments[1], ends, isolation);
            }
        }
    }

    static void read(KafkaConsumer<byte[], byte[]> consumer, String topic, String[] ends, String isolation) throws Exception {
        List<TopicPartition> partitions = new ArrayList<>();
        MessageDigest[] digests = new MessageDigest[ends.length];
        long[] counts = new long[ends.length];
        for (int i = 0; i < ends.length; i++) {
            partitions.add(new TopicPartition(topic, i));
            digests[i] = MessageDigest.getInstance("SHA-256");
        }
        consumer.assign(partitions);
        consumer.seekToBeginning(partitions);
        long deadline = System.currentTimeMillis() + LIMIT_MS;
        for (int left = ends.length; left > 0; ) {
            if (System.currentTimeMillis() > deadline) {
                System.err.println(isolation + ": not at the ends in " + LIMIT_MS + " ms");
                System.exit(1);
            }
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                int partition = record.partition();
                if (record.offset() >= Long.parseLong(ends[partition])) continue;
                counts[partition]++;
                add(digests[partition], record);
            }
            left = 0;
            for (TopicPartition partition : partitions) {
                if (consumer.position(partition) < Long.parseLong(ends[partition.partition()])) left++;
            }
        }
        for (int i = 0; i < ends.length; i++) {
            System.out.println(isolation + " " + i + " " + counts[i] + " " + HexFormat.of().formatHex(digests[i].digest()));
        }
    }

    static void add(MessageDigest digest, ConsumerRecord<byte[], byte[]> record) {
        digest.update(ByteBuffer.allocate(20).putLong(record.offset()).putLong(record.timestamp()).putInt(record.leaderEpoch().orElse(-1)).array());
        add(digest, record.key());
        add(digest, record.value());
        for (Header header : record.headers()) {
            add(digest, header.key().getBytes());
            add(digest, header.value());
        }
    }

    static void add(MessageDigest digest, byte[] bytes) {
        digest.update(ByteBuffer.allocate(4).putInt(bytes == null ? -1 : bytes.length).array());
        if (bytes != null) digest.update(bytes);
    }
}
