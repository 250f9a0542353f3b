# SPDX-License-Identifier: Apache-2.0
# The tests labelled timing: what each of them is about is a moment, and its limit is so near (50 ms to
# 500 ms) that a host which takes the processors away for as long breaks it, whatever the library did.
# tests/run.sh gives them one more try, alone. None of them checks exclusion, counts or losses: one that calls
# noteSafetyCheck() gets no other try, whatever its label.

# rlock_label_timing(<program> <Suite.Test>...)
#
# Adds the label to those tests of a program that rlock_add_gtest() made. Call it after what else sets
# their labels. A name that no test has is an error when ctest starts.
function(rlock_label_timing program)
  set(own "")
  if(program STREQUAL "sync")
    set(own ";sync")
  endif()
  list(JOIN ARGN " " names)
  set(script "${CMAKE_CURRENT_BINARY_DIR}/${program}_timing.cmake")
  file(WRITE "${script}" "set(program_cases \"\${${program}_cases}\")
foreach(name IN ITEMS ${names})")
  file(APPEND "${script}" "
  set(own \"${own}\")")
  file(APPEND "${script}" [==[

  if(NOT program_cases)
    break()
  endif()
  string(REPLACE "." "[.]" pattern "${name}")
  set(cases "${program_cases}")
  list(FILTER cases INCLUDE REGEX "[./]${pattern}(/| |$)")
  if(NOT cases)
    message(FATAL_ERROR "tests/timing_tests.cmake names ${name}, which no test is")
  endif()
  if(name MATCHES "Slow[.]")
    set_tests_properties(${cases} PROPERTIES LABELS "integration;slow;timing${own}")
  else()
    set_tests_properties(${cases} PROPERTIES LABELS "integration;timing${own}")
  endif()
endforeach()
]==])
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${script}")
endfunction()

rlock_label_timing(lock_integration
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

rlock_label_timing(sync
  # Acknowledgements that do not come end a call or a hold when its time is up, and delay no others.
  Sync.ACallerThatLeavesLeavesNothingBehind
  Sync.AnAcquisitionThatIsNotAcknowledgedEndsWithThePolicysLimit
  Sync.OthersAreNotDelayedByAReplicaThatHangs
  SyncSlow.TheLossIsToldOneTimeoutAfterTheLastAcknowledgedRenewal)

rlock_label_timing(integration
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
