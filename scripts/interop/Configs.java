import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.common.config.ConfigResource;

/** Configs BOOTSTRAP TOPIC: appends to list configs and takes from them again, as only the admin client can. */
public class Configs {
    static Admin admin;

    static void change(ConfigResource resource, OpType kind, String key, String value) throws Exception {
        Collection<AlterConfigOp> ops = List.of(new AlterConfigOp(new ConfigEntry(key, value), kind));
        admin.incrementalAlterConfigs(Map.of(resource, ops)).all().get();
    }

    static ConfigEntry entry(ConfigResource resource, String key) throws Exception {
        return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(key);
    }

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        admin = Admin.create(properties);
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, args[1]);
        String key = "cleanup.policy";
        for (OpType kind : List.of(OpType.APPEND, OpType.APPEND, OpType.SUBTRACT, OpType.SUBTRACT)) {
            String value = kind == OpType.APPEND ? "compact" : "delete";
            change(topic, kind, key, value);
            // The image that is asked may be a moment behind.
            String now = entry(topic, key).value();
            for (int i = 0; i < 200 && now.contains(value) != (kind == OpType.APPEND); i++) {
                Thread.sleep(25);
                now = entry(topic, key).value();
            }
            System.out.println(key + " " + kind.toString().toLowerCase() + " " + value + ": " + now);
        }
        try {
            change(topic, OpType.APPEND, "retention.ms", "1");
            System.out.println("retention.ms append: taken");
        } catch (ExecutionException e) {
            System.out.println("retention.ms append: " + e.getCause().getClass().getSimpleName());
        }
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        change(broker, OpType.APPEND, "log.cleanup.policy", "compact");
        ConfigEntry found = entry(broker, "log.cleanup.policy");
        for (int i = 0; i < 200 && !found.value().contains("compact"); i++) {
            Thread.sleep(25);
            found = entry(broker, "log.cleanup.policy");
        }
        System.out.println("broker 1 append: " + found.value() + " " + found.source());
        admin.close();
    }
}
