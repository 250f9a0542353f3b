// SPDX-License-Identifier: Apache-2.0
package rlock.interop;

import java.net.URI;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.BaseMasterSlaveServersConfig;
import org.redisson.config.Config;
import org.redisson.config.SingleServerConfig;

/** Makes Redisson clients, whatever the version. */
final class Clients {
  private Clients() {}

  static String version() {
    return Redisson.class.getPackage().getImplementationVersion();
  }

  static String id(RedissonClient client) throws Exception {
    return (String) Reflection.call(client, "getId");
  }

  /**
   * @param uri  {@code redis://HOST}, {@code redis+sentinel://HOST,.../MASTER} or {@code
   *     redis+cluster://HOST,...}
   * @param watchdogMs  lease of holds that are renewed
   * @param fairWaitMs  how long a place in a fair queue lasts, where the version lets one choose
   * @param commandMs  how long a reply is waited for; 0, or more than one server: the default
   * @param checkReplicas  whether an acquisition that no replica has is taken back, as by default
   */
  static RedissonClient open(String uri, long watchdogMs, long safetyPollMs, long fairWaitMs,
      long commandMs, boolean checkReplicas) throws Exception {
    Config config = new Config();
    // The locks write no encoded values; the default codecs need libraries and module access.
    config.setCodec(StringCodec.INSTANCE);
    config.setThreads(4);
    config.setNettyThreads(4);
    config.setLockWatchdogTimeout(watchdogMs);
    Reflection.callIfPresent(config, "setCheckLockSyncedSlaves", checkReplicas);
    if (fairWaitMs > 0) {
      Reflection.callIfPresent(config, "setFairLockWaitTimeout", fairWaitMs);
    }
    String scheme = uri.substring(0, uri.indexOf("://"));
    String rest = uri.substring(uri.indexOf("://") + 3);
    String[] nodes = rest.replaceAll("/.*", "").split(",");
    for (int i = 0; i < nodes.length; i++) {
      nodes[i] = "redis://" + nodes[i];
    }
    switch (scheme) {
      case "redis+sentinel":
        small(config.useSentinelServers())
            .setMasterName(rest.substring(rest.indexOf('/') + 1))
            .addSentinelAddress(nodes);
        break;
      case "redis+cluster":
        // How often it looks where the masters are: as with Sentinels, where a second is the default.
        small(config.useClusterServers()).setScanInterval(1000).addNodeAddress(nodes);
        break;
      default: {
        SingleServerConfig server = config.useSingleServer().setAddress(nodes[0])
            .setConnectionMinimumIdleSize(2).setConnectionPoolSize(32)
            .setDatabase(database(URI.create(uri)));
        if (commandMs > 0) {
          server.setTimeout(Math.toIntExact(commandMs));
        }
        break;
      }
    }
    return Redisson.create(config);
  }

  /** Fewer connections to each server than the default, which opens 24 at once. */
  private static <T extends BaseMasterSlaveServersConfig<T>> T small(T servers) {
    return servers.setMasterConnectionMinimumIdleSize(2).setMasterConnectionPoolSize(32)
        .setSlaveConnectionMinimumIdleSize(1).setSlaveConnectionPoolSize(32);
  }

  private static int database(URI uri) {
    String path = uri.getPath();
    return path == null || path.length() < 2 ? 0 : Integer.parseInt(path.substring(1));
  }
}
