// Transactions BOOTSTRAP TOPIC
// Transactional producers driven by lines on standard input; each line is answered by one, "ok …" or "error …":
//   begin ID                      starts a transaction of the producer ID (made at its first use)
//   send ID PARTITION COUNT TEXT  sends COUNT records and waits for them; answers the last offset
//   commit ID | abort ID | plain PARTITION COUNT TEXT (a producer without transactions)
//   end                           ends the program without closing producers, open transactions stay open
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringSerializer;

public class Transactions {
    static final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.trim().split(" ");
            if (words[0].equals("end")) {
                System.out.println("ok end");
                System.out.flush();
                Runtime.getRuntime().halt(0);
            }
            try {
                System.out.println("ok " + perform(arguments[0], arguments[1], words));
            } catch (Exception e) {
                System.out.println("error " + e.toString().replace("\n", " "));
            }
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    static String perform(String bootstrap, String topic, String[] words) throws Exception {
        String id = words[0].equals("plain") ? "" : words[1];
        KafkaProducer<String, String> producer = producers.computeIfAbsent(id, key -> open(bootstrap, key));
        switch (words[0]) {
            case "begin":
                producer.beginTransaction();
                return "begun";
            case "send":
                return send(producer, topic, words[2], words[3], words[4]);
            case "plain":
                return send(producer, topic, words[1], words[2], words[3]);
            case "commit":
                producer.commitTransaction();
                return "committed";
            case "abort":
                producer.abortTransaction();
                return "aborted";
            default:
                throw new IllegalArgumentException("what is " + words[0] + "?");
        }
    }

    static KafkaProducer<String, String> open(String bootstrap, String id) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "linger.ms", "5", "compression.type", "lz4"));
        if (!id.isEmpty()) {
            settings.put("transactional.id", id);
            settings.put("transaction.timeout.ms", "600000");
        }
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        if (!id.isEmpty()) producer.initTransactions();
        return producer;
    }

    static String send(KafkaProducer<String, String> producer, String topic, String partition, String count, String text) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(count); i++) {
            ProducerRecord<String, String> record = new ProducerRecord<>(topic, Integer.valueOf(partition), "key-" + i, text + "-" + i);
            record.headers().add("origin", text.getBytes()).add("origin", null);
            sent.add(producer.send(record));
        }
        producer.flush();
        long last = -1;
        for (Future<RecordMetadata> future : sent) last = future.get(30, TimeUnit.SECONDS).offset();
        return Long.toString(last);
    }
}
