/**
 * Small ACID transactions over plain files, in process.
 *
 * <p>{@link txos.Transaction} is where everything begins.
 */
package txos;
