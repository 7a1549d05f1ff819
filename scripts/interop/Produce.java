// Produce refused BOOTSTRAP TOPIC PARTITION OTHER | Produce write BOOTSTRAP TOPIC PARTITION VALUE
// The jobs of README.md with Kafka's own producer, as its defaults are (idempotent, retries without end).
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class Produce {
    public static void main(String[] arguments) throws Exception {
        if (arguments.length != 5) {
            System.out.println("usage: Produce refused|write BOOTSTRAP TOPIC PARTITION OTHER|VALUE");
            return;
        }
        String topic = arguments[2];
        int partition = Integer.parseInt(arguments[3]);
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[1], "max.block.ms", "20000", "delivery.timeout.ms", "60000", "request.timeout.ms", "20000");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            if (arguments[0].equals("write")) {
                System.out.println("{\"offset\": " + send(producer, topic, partition, arguments[4]) + "}");
                return;
            }
            producer.partitionsFor(topic);
            long begin = System.nanoTime();
            String error = null;
            try {
                send(producer, topic, partition, "must be refused");
            } catch (ExecutionException e) {
                error = e.getCause().getClass().getSimpleName() + ": " + e.getCause().getMessage();
            }
            long took = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begin);
            long other = send(producer, arguments[4], 0, "same producer, ordinary topic");
            System.out.println("{\"error\": " + quote(error) + ", \"refused_ms\": " + took + ", \"other_offset\": " + other + "}");
        }
    }

    static long send(KafkaProducer<String, String> producer, String topic, int partition, String value) throws Exception {
        return producer.send(new ProducerRecord<>(topic, partition, "java", value)).get(60, TimeUnit.SECONDS).offset();
    }

    static String quote(String text) {
        if (text == null) return "null";
        return "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", " ") + "\"";
    }
}
