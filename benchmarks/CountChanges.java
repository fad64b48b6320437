import com.amazonaws.services.dynamodbv2.streamsadapter.AmazonDynamoDBStreamsAdapterClient;
import com.amazonaws.services.dynamodbv2.streamsadapter.StreamsSchedulerFactory;
import com.amazonaws.services.dynamodbv2.streamsadapter.model.DynamoDBStreamsProcessRecordsInput;
import com.amazonaws.services.dynamodbv2.streamsadapter.polling.DynamoDBStreamsPollingConfig;
import com.amazonaws.services.dynamodbv2.streamsadapter.processor.DynamoDBStreamsShardRecordProcessor;
import java.lang.management.ManagementFactory;
import java.net.URI;
import java.util.Scanner;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.cloudwatch.CloudWatchAsyncClient;
import software.amazon.awssdk.services.dynamodb.DynamoDbAsyncClient;
import software.amazon.awssdk.services.dynamodb.streams.DynamoDbStreamsClient;
import software.amazon.kinesis.common.ConfigsBuilder;
import software.amazon.kinesis.common.InitialPositionInStream;
import software.amazon.kinesis.common.InitialPositionInStreamExtended;
import software.amazon.kinesis.coordinator.Scheduler;
import software.amazon.kinesis.lifecycle.events.InitializationInput;
import software.amazon.kinesis.lifecycle.events.LeaseLostInput;
import software.amazon.kinesis.lifecycle.events.ShardEndedInput;
import software.amazon.kinesis.lifecycle.events.ShutdownRequestedInput;
import software.amazon.kinesis.metrics.MetricsLevel;
import software.amazon.kinesis.metrics.NullMetricsFactory;

/**
 * Reads a stream of a DynamoDB table with the Streams adapter of the Kinesis Client Library and counts its changes, once
 * for each line of the standard input. A line has the endpoints of DynamoDB Streams and DynamoDB, the ARN of the stream
 * and the number of changes to wait for. Prints the number of changes, and the processor seconds of this process from
 * the start of the first shard to the last change.
 */
public class CountChanges {
    static final com.sun.management.OperatingSystemMXBean PROCESS =
        (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    static final StaticCredentialsProvider CREDENTIALS =
        StaticCredentialsProvider.create(AwsBasicCredentials.create("AKIDEXAMPLE", "secret"));

    static class Counter implements DynamoDBStreamsShardRecordProcessor {
        final long wanted;
        final AtomicLong changes = new AtomicLong();
        final AtomicLong begun = new AtomicLong();
        final CountDownLatch done = new CountDownLatch(1);
        volatile long ended;

        Counter(long wanted) {
            this.wanted = wanted;
        }

        public void initialize(InitializationInput input) {
            begun.compareAndSet(0, PROCESS.getProcessCpuTime());
        }

        public void processRecords(DynamoDBStreamsProcessRecordsInput input) {
            if (changes.addAndGet(input.records().size()) >= wanted && done.getCount() > 0) {
                ended = PROCESS.getProcessCpuTime();
                done.countDown();
            }
        }

        public void leaseLost(LeaseLostInput input) {}

        public void shardEnded(ShardEndedInput input) {}

        public void shutdownRequested(ShutdownRequestedInput input) {}
    }

    public static void main(String[] arguments) throws Exception {
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] line = lines.nextLine().split(" ");
            Counter counter = new Counter(Long.parseLong(line[3]));
            read(line[0], line[1], line[2], counter);
            System.out.printf("%d %.4f%n", counter.changes.get(), (counter.ended - counter.begun.get()) / 1e9);
        }
        System.exit(0);
    }

    static void read(String streamsUrl, String dynamoDbUrl, String stream, Counter counter) throws Exception {
        // The same name each time, so it starts with the existing leases: nothing is checkpointed.
        String application = "count";
        DynamoDbStreamsClient streams = DynamoDbStreamsClient.builder()
            .endpointOverride(URI.create(streamsUrl)).region(Region.US_EAST_1).credentialsProvider(CREDENTIALS).build();
        AmazonDynamoDBStreamsAdapterClient adapter = new AmazonDynamoDBStreamsAdapterClient(streams, Region.US_EAST_1);
        DynamoDbAsyncClient dynamoDb = DynamoDbAsyncClient.builder()
            .endpointOverride(URI.create(dynamoDbUrl)).region(Region.US_EAST_1).credentialsProvider(CREDENTIALS).build();
        CloudWatchAsyncClient cloudWatch = CloudWatchAsyncClient.builder()
            .endpointOverride(URI.create(dynamoDbUrl)).region(Region.US_EAST_1).credentialsProvider(CREDENTIALS).build();
        ConfigsBuilder configs = new ConfigsBuilder(
            StreamsSchedulerFactory.createSingleStreamTracker(
                stream, InitialPositionInStreamExtended.newInitialPosition(InitialPositionInStream.TRIM_HORIZON)),
            application, adapter, dynamoDb, cloudWatch, application, () -> counter);
        var leases = configs.leaseManagementConfig().failoverTimeMillis(5000).shardSyncIntervalMillis(500);  // it starts with a whole interval
        leases.workerUtilizationAwareAssignmentConfig().disableWorkerMetrics(true);
        var coordination = configs.coordinatorConfig().parentShardPollIntervalMillis(500);
        coordination.skipShardSyncAtWorkerInitializationIfLeasesExist(true);
        DynamoDBStreamsPollingConfig polling = new DynamoDBStreamsPollingConfig(adapter);
        // More often than by default: it finishes sooner and renews fewer leases.
        polling.idleTimeBetweenReadsInMillis(250).maxRecords(1000);
        Scheduler scheduler = StreamsSchedulerFactory.createScheduler(
            configs.checkpointConfig(), coordination, leases, configs.lifecycleConfig(),
            configs.metricsConfig().metricsLevel(MetricsLevel.NONE).metricsFactory(new NullMetricsFactory()),
            configs.processorConfig(), configs.retrievalConfig().retrievalSpecificConfig(polling), adapter);
        Thread thread = new Thread(scheduler);
        thread.setDaemon(true);
        thread.start();
        boolean whole = counter.done.await(300, TimeUnit.SECONDS);
        scheduler.shutdown();
        thread.join(60_000);
        adapter.close();
        dynamoDb.close();
        cloudWatch.close();
        if (!whole) {
            throw new IllegalStateException(counter.changes.get() + " of " + counter.wanted + " changes were read");
        }
    }
}
