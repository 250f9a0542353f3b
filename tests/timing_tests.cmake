# SPDX-License-Identifier: Apache-2.0
# The tests labelled timing: what each of them is about is a moment, and its limit is so near (50 ms to
# 500 ms) that a host which takes the processors away for as long breaks it, whatever the library did.
# tests/run.sh gives them one more try, alone. None of them checks exclusion, counts or losses: one that calls
# noteSafetyCheck() gets no other try, whatever its label.

# RLOCK_TIMING_<program>: the tests, <Suite>.<Test>, of a program that rlock_add_gtest() makes later. A name that no
# test has is an error when ctest starts.

set(RLOCK_TIMING_lock_integration
  # A call ends when its time is up, with nothing that could end it sooner.
  BadInput.ADatabaseThatDoesNotExist
  Deadlines.C4_AWaiterEndsInItsTimeWhenTheServerGoesAway
  Deadlines.C4_EveryCallEndsInItsTime
  DeadlinesOfConnect.C4_ConnectEndsInItsTime
  Inspection.AListEndsWithinTheCallTimeoutAndSaysHowFarItCame
  LatchTest.CD06_AwaitOutOfTime
  LeaseObject.UnknownWhenTheServerDoesNotAnswer
  LockConformance.LK17_RedisStopped
  LockRestart.XCLK7_AWaitEndsInItsTimeBesideAFrozenServer
  SemaphoreTest.ATimeLimitEndsTheWait
  ServerTrouble.XERR9_AReplicaByMistake
  ServerTroubleSlow.XERR11_ABusyServer
  ServerTroubleSlow.XERR14_TheLimitOfConnections
  SpinLock.W64_APauseEndsWithTheWait
  # A call that does not wait for the server does not.
  LeaseObject.XCPP1_TheDestructorNeitherThrowsNorHangsWhenRedisIsDown
  LockMutex.UnlockNeitherThrowsNorWaitsWhenRedisIsDown
  LockWatchdogSlow.XWD16_CloseDoesNotWaitForAServerThatDoesNotAnswer
  # A waiter gets what a dead owner held when the lease is over, and not much later.
  FairLockFaces.FL05_TryLockWaitsForADeadOwner
  FairLockFaces.XFAIR6_TheHeadTakesAnExpiredLockWithoutAMessage
  FairLockLostReply.ALostWithdrawalIsRepeatedOrLapses
  LockConformance.LK13_TryLockWaitsForADeadOwner
  SpinLock.SP11_TryLockWaitsForADeadOwner
  # A lease that is renewed through a slow network.
  LockNetworkSlow.XNET5_AFewBytesAtATime)

set(RLOCK_TIMING_sync
  # Acknowledgements that do not come end a call or a hold when its time is up, and delay no others.
  Sync.ACallerThatLeavesLeavesNothingBehind
  Sync.AnAcquisitionThatIsNotAcknowledgedEndsWithThePolicysLimit
  Sync.OthersAreNotDelayedByAReplicaThatHangs
  SyncSlow.TheLossIsToldOneTimeoutAfterTheLastAcknowledgedRenewal)

set(RLOCK_TIMING_integration
  # Connecting ends when its time is up.
  ConnectorRedisTest.HandsOverABlockingConfiguredSocket
  ConnectorTest.StaysWithinTheTimeOfAllEndpointsTogether
  ConnectorTest.TimesOutOnABlackHoleAccurately
  ConnectorTest.TimesOutOnAServerThatNeverAnswers
  PlainStreamTest.KeepsItsReceiveTimeUnderAStormOfSignals
  ResolverTest.AHungResolverIsATimeout
  # A server that does not answer is noticed when its time is up.
  PubSubLinkRedisTest.NoticesAFrozenServerInTime
  PubSubLinkRedisTest.NoticesAnUnansweredSubscriptionSooner
  PubSubLinkRedisTest.NoticesBlackHolesInEitherDirection)
