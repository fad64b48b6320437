import java.lang.management.ManagementFactory;
import java.net.URI;
import java.util.Scanner;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.http.Protocol;
import software.amazon.awssdk.http.nio.netty.NettyNioAsyncHttpClient;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.cloudwatch.CloudWatchAsyncClient;
import software.amazon.awssdk.services.dynamodb.DynamoDbAsyncClient;
import software.amazon.awssdk.services.kinesis.KinesisAsyncClient;
import software.amazon.kinesis.common.ConfigsBuilder;
import software.amazon.kinesis.common.InitialPositionInStream;
import software.amazon.kinesis.common.InitialPositionInStreamExtended;
import software.amazon.kinesis.coordinator.Scheduler;
import software.amazon.kinesis.lifecycle.events.InitializationInput;
import software.amazon.kinesis.lifecycle.events.LeaseLostInput;
import software.amazon.kinesis.lifecycle.events.ProcessRecordsInput;
import software.amazon.kinesis.lifecycle.events.ShardEndedInput;
import software.amazon.kinesis.lifecycle.events.ShutdownRequestedInput;
import software.amazon.kinesis.metrics.MetricsLevel;
import software.amazon.kinesis.metrics.NullMetricsFactory;
import software.amazon.kinesis.processor.ShardRecordProcessor;
import software.amazon.kinesis.processor.SingleStreamTracker;
import software.amazon.kinesis.retrieval.KinesisClientRecord;
import software.amazon.kinesis.retrieval.polling.PollingConfig;

/**
 * Reads a stream with the Kinesis Client Library and counts its bytes, once for each line of the standard input. A line
 * has the endpoints of Kinesis and DynamoDB and the number of records to wait for. Prints the number of records, their
 * bytes, and the processor seconds of this process from the start of the first shard to the last record.
 */
public class Count {
    static final com.sun.management.OperatingSystemMXBean PROCESS =
        (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    static final StaticCredentialsProvider CREDENTIALS =
        StaticCredentialsProvider.create(AwsBasicCredentials.create("AKIDEXAMPLE", "secret"));

    static class Counter implements ShardRecordProcessor {
        final long wanted;
        final AtomicLong records = new AtomicLong();
        final AtomicLong bytes = new AtomicLong();
        final AtomicLong begun = new AtomicLong();
        final CountDownLatch done = new CountDownLatch(1);
        volatile long ended;

        Counter(long wanted) {
            this.wanted = wanted;
        }

        public void initialize(InitializationInput input) {
            begun.compareAndSet(0, PROCESS.getProcessCpuTime());
        }

        public void processRecords(ProcessRecordsInput input) {
            long sum = 0;
            for (KinesisClientRecord record : input.records()) {
                sum += record.data().remaining();
            }
            bytes.addAndGet(sum);
            if (records.addAndGet(input.records().size()) >= wanted && done.getCount() > 0) {
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
            Counter counter = new Counter(Long.parseLong(line[2]));
            read(line[0], line[1], counter);
            System.out.printf(
                "%d %d %.4f%n", counter.records.get(), counter.bytes.get(), (counter.ended - counter.begun.get()) / 1e9);
        }
        System.exit(0);
    }

    static void read(String kinesisUrl, String dynamoDbUrl, Counter counter) throws Exception {
        // The same name each time, so it starts with the existing leases: nothing is checkpointed.
        String application = "count";
        KinesisAsyncClient kinesis = KinesisAsyncClient.builder()
            .httpClientBuilder(NettyNioAsyncHttpClient.builder().protocol(Protocol.HTTP1_1).maxConcurrency(100))
            .endpointOverride(URI.create(kinesisUrl)).region(Region.US_EAST_1).credentialsProvider(CREDENTIALS).build();
        DynamoDbAsyncClient dynamoDb = DynamoDbAsyncClient.builder()
            .endpointOverride(URI.create(dynamoDbUrl)).region(Region.US_EAST_1).credentialsProvider(CREDENTIALS).build();
        CloudWatchAsyncClient cloudWatch = CloudWatchAsyncClient.builder()
            .endpointOverride(URI.create(dynamoDbUrl)).region(Region.US_EAST_1).credentialsProvider(CREDENTIALS).build();
        ConfigsBuilder configs = new ConfigsBuilder(
            new SingleStreamTracker("b", InitialPositionInStreamExtended.newInitialPosition(InitialPositionInStream.TRIM_HORIZON)),
            application, kinesis, dynamoDb, cloudWatch, application, () -> counter);
        var leases = configs.leaseManagementConfig().failoverTimeMillis(5000).shardSyncIntervalMillis(500);  // it starts with a whole interval
        leases.workerUtilizationAwareAssignmentConfig().disableWorkerMetrics(true);
        var coordination = configs.coordinatorConfig().parentShardPollIntervalMillis(500);
        coordination.skipShardSyncAtWorkerInitializationIfLeasesExist(true);
        // More often than by default: it finishes sooner and renews fewer leases.
        PollingConfig polling = new PollingConfig("b", kinesis).idleTimeBetweenReadsInMillis(250).maxRecords(10_000);
        Scheduler scheduler = new Scheduler(
            configs.checkpointConfig(), coordination, leases, configs.lifecycleConfig(),
            configs.metricsConfig().metricsLevel(MetricsLevel.NONE).metricsFactory(new NullMetricsFactory()),
            configs.processorConfig(), configs.retrievalConfig().retrievalSpecificConfig(polling));
        Thread thread = new Thread(scheduler);
        thread.setDaemon(true);
        thread.start();
        boolean whole = counter.done.await(300, TimeUnit.SECONDS);
        scheduler.shutdown();
        thread.join(60_000);
        kinesis.close();
        dynamoDb.close();
        cloudWatch.close();
        if (!whole) {
            throw new IllegalStateException(counter.records.get() + " of " + counter.wanted + " records were read");
        }
    }
}
